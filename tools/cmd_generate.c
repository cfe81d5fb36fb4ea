/* SPDX-License-Identifier: Apache-2.0
 * `lathe generate`: tokens in, tokens out. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command_line.h"
#include "commands.h"
#include "decode.h"
#include "exit_status.h"
#include "generated.h"
#include "npy.h"
#include "opened_weights.h"
#include "ranks.h"
#include "token_list.h"
#include "watchdog.h"

const char lathe_cmd_generate_summary[] = "continue a list of tokens, greedily";

#define MESSAGE_BYTES 65536 /* room for a list of missing tensors */

static const char help[] =
    "usage: lathe generate DIR|LAYOUT --weights WHAT --tokens LIST --steps N [options]\n"
    "\n"
    "Continues a list of tokens by N, each the one of the greatest logit, and prints them.\n"
    "\n"
    "  --weights WHAT     a checkpoint (folder, index or file), calm:SEED or unkind:SEED\n"
    "  --tokens LIST      of the prompt: token ids with commas between\n"
    "  --steps N          tokens to print\n"
    "  --draft FILE       proposed tokens for what is printed, by place (-1: none): fewer steps, "
    "the same tokens\n"
    "  --experts full|ep  expert-TP slices cut from full weights, or made by all ranks together "
    "out of whole\n"
    "                     experts, of which each holds its share  [full]\n"
    "  --logits FILE      write the logits of every token printed, .npy f4 [N, vocabulary]\n"
    "  --device cuda|host [host]\n"
    "  --schedule S       seed of the host device's schedule  [1]\n"
    "  --cache DIR        of compiled kernels\n"
    "  --tp N  --arch A  --deployment NAME     for a layout: what to generate\n";

typedef struct {
    const char *target; /* a generated directory, or a layout file */
    const char *tp, *arch, *deployment;
    const char *weights;
    const char *tokens; /* of the prompt, as written */
    const char *draft;  /* a file of proposed tokens, or NULL */
    const char *logits; /* .npy to write, or NULL */
    const char *cache;
    lathe_device_kind device;
    bool experts_by_rank;
    int64_t steps;
    int64_t schedule; /* seed of the host device */
} options;

typedef struct {
    options o;
    lathe_generated generated;
    lathe_ranks ranks;
    lathe_opened_weights weights;
    lathe_token_list prompt, draft;
    lathe_npy logits; /* [yielded, vocabulary] */
    bool printed;
    bool made_logits; /* the file of --logits was not there before */
    char message[MESSAGE_BYTES];
} generation;

static bool take_device(const char *text, void *to) {
    const bool cuda = strcmp(text, "cuda") == 0;
    *(lathe_device_kind *)to = cuda ? LATHE_DEVICE_CUDA : LATHE_DEVICE_HOST;
    return cuda || strcmp(text, "host") == 0;
}

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, options *o) {
    const lathe_option list[] = {
        {.name = "--tp", .text = &o->tp},
        {.name = "--arch", .text = &o->arch},
        {.name = "--deployment", .text = &o->deployment, .may_be_empty = true},
        {.name = "--weights", .text = &o->weights, .required = true},
        {.name = "--tokens", .text = &o->tokens, .may_be_empty = true, .required = true},
        {.name = "--steps", .number = &o->steps, .least = 1, .required = true},
        {.name = "--draft", .text = &o->draft},
        {.name = "--logits", .text = &o->logits},
        {.name = "--cache", .text = &o->cache},
        {.name = "--schedule", .number = &o->schedule},
        {.name = "--experts",
         .take = lathe_take_experts,
         .to = &o->experts_by_rank,
         .allowed = "full, ep"},
        {.name = "--device", .take = take_device, .to = &o->device, .allowed = "cuda, host"},
        {0}};
    const lathe_command_line line = {.command = "generate",
                                     .help = help,
                                     .options = list,
                                     .target = &o->target,
                                     .target_is = "a generated directory or a layout"};
    *o = (options){.schedule = 1};
    return lathe_command_line_parse(&line, argc, argv);
}

static int fail(lathe_status status, const char *message) {
    fprintf(stderr, "lathe generate: %s\n", message);
    return lathe_exit_status(status);
}

static void show_progress(void *context, lathe_log_kind kind, const char *text, int done,
                          int total) {
    (void)context;
    if (kind == LATHE_LOG_WARNING)
        fprintf(stderr, "lathe generate: warning: %s\n", text);
    else if (kind == LATHE_LOG_PROGRESS && isatty(STDERR_FILENO) && total > 0)
        fprintf(stderr, "\r\033[K%s %d/%d%s", text, done, total, done == total ? "\n" : "");
}

static lathe_status create(generation *g) {
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = g->generated.directory;
    o.device = g->o.device;
    o.seed = (uint64_t)g->o.schedule;
    o.cache = g->o.cache;
    o.log = show_progress;
    const lathe_status status = lathe_ranks_create(&o, &g->ranks, g->message, sizeof g->message);
    if (status != LATHE_OK)
        return status;
    for (int rank = 0; rank < g->ranks.count; ++rank) {
        const char *reason = lathe_unsupported(g->ranks.engines[rank]);
        if (!reason)
            continue;
        snprintf(g->message, sizeof g->message, "%s", reason);
        return LATHE_UNSUPPORTED;
    }
    return lathe_generated_check(&g->generated, g->o.target,
                                 lathe_engine_table(g->ranks.engines[0]), g->o.tp, g->o.arch,
                                 g->o.deployment, g->message, sizeof g->message);
}

static lathe_status read_tokens(generation *g) {
    lathe_status status =
        lathe_token_list_parse(g->o.tokens, "--tokens", &g->prompt, g->message, sizeof g->message);
    if (status == LATHE_OK && g->o.draft)
        status = lathe_token_list_read(g->o.draft, &g->draft, g->message, sizeof g->message);
    return status;
}

static lathe_status build(generation *g) {
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    lathe_expert_shards shards[LATHE_GROUP_MAX];
    const lathe_step_table *table = lathe_engine_table(g->ranks.engines[0]);
    for (int rank = 0; rank < g->ranks.count; ++rank) {
        weights[rank] = (lathe_weights){table, rank, g->weights.reader};
        sources[rank] = lathe_weights_source(&weights[rank]);
        shards[rank] = (lathe_expert_shards){rank, g->ranks.count, 0};
        sources[rank].experts = g->o.experts_by_rank ? &shards[rank] : NULL;
    }
    return lathe_ranks_build(&g->ranks, sources, g->message, sizeof g->message);
}

static void keep_logits(generation *g, int64_t number, const float *logits, int64_t count) {
    lathe_npy *a = &g->logits;
    if (!a->data) {
        *a = (lathe_npy){.type = LATHE_NPY_F32, .rank = 2, .shape = {g->o.steps, count}};
        a->count = g->o.steps * count;
        a->data = calloc((size_t)a->count, sizeof(float));
    }
    if (a->data)
        memcpy((float *)a->data + number * count, logits, (size_t)count * sizeof *logits);
}

static void print_token(void *context, int64_t number, int32_t token, const float *logits,
                        int64_t count) {
    generation *g = context;
    printf("%s%" PRId32, number ? "," : "", token);
    g->printed = true;
    fflush(stdout);
    if (g->o.logits && logits)
        keep_logits(g, number, logits, count);
}

/* That a file of logits can be written, before anything runs. */
static lathe_status open_logits(generation *g, const lathe_step_table *table) {
    if (!g->o.logits)
        return LATHE_OK;
    if (!lathe_decode_has_logits(table)) {
        snprintf(g->message, sizeof g->message,
                 "--logits: the step has no output logits, f32 [rows, vocabulary]");
        return LATHE_UNSUPPORTED;
    }
    int file = open(g->o.logits, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    g->made_logits = file >= 0;
    if (file < 0 && errno == EEXIST) /* no pipe without a reader is waited for */
        file = open(g->o.logits, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && close(file) == 0)
        return LATHE_OK;
    snprintf(g->message, sizeof g->message, "--logits: %s: %s", g->o.logits, strerror(errno));
    return LATHE_IO;
}

static lathe_status write_logits(generation *g) {
    if (!g->o.logits)
        return LATHE_OK;
    if (g->logits.data)
        return lathe_npy_write(g->o.logits, &g->logits, g->message, sizeof g->message);
    snprintf(g->message, sizeof g->message, "--logits: no memory");
    return LATHE_NO_MEMORY;
}

static lathe_status decode(generation *g, const lathe_decode_options *o) {
    lathe_decode_result result;
    const lathe_status status = lathe_decode(o, &result, g->message, sizeof g->message);
    if (status == LATHE_OK || g->printed)
        putchar('\n');
    fflush(stdout);
    if (status != LATHE_OK)
        return status;
    if (g->o.draft)
        fprintf(stderr,
                "%" PRId64 " steps for %" PRId64 " + %" PRId64 " tokens; %" PRId64 " of %" PRId64
                " proposals accepted\n",
                result.steps, g->prompt.count, g->o.steps, result.accepted, result.proposed);
    return write_logits(g);
}

/* Everything that may be wrong with what was given is found before a weight is read. */
static lathe_status run(generation *g) {
    lathe_status status = create(g);
    if (status == LATHE_OK)
        status = read_tokens(g);
    if (status != LATHE_OK)
        return status;
    const lathe_decode_options o = {.engines = g->ranks.engines,
                                    .ranks = g->ranks.count,
                                    .prompt = g->prompt.tokens,
                                    .prompt_count = g->prompt.count,
                                    .steps = g->o.steps,
                                    .draft = g->draft.tokens,
                                    .draft_count = g->draft.count,
                                    .emit = print_token,
                                    .context = g};
    const lathe_step_table *table = lathe_engine_table(g->ranks.engines[0]);
    status = lathe_decode_check(table, &o, g->message, sizeof g->message);
    if (status == LATHE_OK)
        status = open_logits(g, table);
    if (status == LATHE_OK)
        status = lathe_opened_weights_open(g->o.weights, table, &g->weights, g->message,
                                           sizeof g->message);
    if (g->o.device == LATHE_DEVICE_HOST)
        lathe_watchdog_start(g->ranks.count);
    if (status == LATHE_OK)
        status = build(g);
    return status == LATHE_OK ? decode(g, &o) : status;
}

static void clean_up(generation *g) {
    lathe_watchdog_stop();
    lathe_ranks_destroy(&g->ranks);
    lathe_opened_weights_close(&g->weights);
    lathe_generated_close(&g->generated);
    lathe_token_list_free(&g->prompt);
    lathe_token_list_free(&g->draft);
    lathe_npy_destroy(&g->logits);
    free(g);
}

int lathe_cmd_generate(int argc, char **argv) {
    generation *g = calloc(1, sizeof *g);
    if (!g)
        return fail(LATHE_NO_MEMORY, "no memory");
    int status = parse(argc, argv, &g->o);
    if (status != 0) {
        free(g);
        return status - 1;
    }
    const char *arch = g->o.device == LATHE_DEVICE_HOST ? "host" : "sm_90a";
    status = lathe_generated_open("generate", g->o.target, g->o.tp ? g->o.tp : "1",
                                  g->o.arch ? g->o.arch : arch, g->o.deployment, &g->generated);
    if (status == LATHE_EXIT_OK) {
        const lathe_status ran = run(g);
        if (ran != LATHE_OK && g->made_logits)
            (void)unlink(g->o.logits);
        if (ran != LATHE_OK)
            status = fail(ran, g->message);
    }
    clean_up(g);
    return status;
}
