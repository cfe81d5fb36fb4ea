/* SPDX-License-Identifier: Apache-2.0
 * `lathe run`: builds a generated directory and runs or checks its step. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "against.h"
#include "check.h"
#include "check_weights.h"
#include "commands.h"
#include "exit_status.h"
#include "generated.h"
#include "image.h"
#include "input_files.h"
#include "opened_weights.h"
#include "processes.h"
#include "ranks.h"
#include "seconds.h"
#include "run_options.h"
#include "run_steps.h"
#include "step_files.h"
#include "watchdog.h"

const char lathe_cmd_run_summary[] = "build a step and run it, or check it against the references";

#define MESSAGE_BYTES 65536 /* room for a list of missing tensors */

/* One run, from the command line to the exit status. */
typedef struct {
    lathe_run_options o;
    lathe_generated generated;
    lathe_ranks ranks;
    lathe_against *against; /* NULL where no other deployment is compared with */
    const lathe_step_table *table;
    lathe_opened_weights weights;
    lathe_image *images[LATHE_GROUP_MAX]; /* of weights, read back once */
    int replaced;                         /* values within the step that come from files */
    int wrong;                            /* synthetic weights other than the host's */
    int runs;                             /* variants and contexts run or checked */
    double began;                         /* seconds */
    char message[MESSAGE_BYTES];
} run;

static int fail(lathe_status status, const char *message) {
    fprintf(stderr, "lathe run: %s\n", message);
    return lathe_exit_status(status);
}

static void show_time(const run *r, const char *what) {
    if (r->o.timing)
        fprintf(stderr, "%8.2f s  %s\n", lathe_seconds() - r->began, what);
}

static void show_progress(void *context, lathe_log_kind kind, const char *text, int done,
                          int total) {
    if (kind == LATHE_LOG_NOTE)
        show_time(context, text);
    else if (kind == LATHE_LOG_WARNING)
        fprintf(stderr, "lathe run: warning: %s\n", text);
    else if (isatty(STDERR_FILENO) && total > 0)
        fprintf(stderr, "\r\033[K%s %d/%d%s", text, done, total, done == total ? "\n" : "");
}

static int open_generated(run *r) {
    const char *arch = r->o.device == LATHE_DEVICE_HOST ? "host" : "sm_90a";
    return lathe_generated_open("run", r->o.target, r->o.tp ? r->o.tp : "1",
                                r->o.arch ? r->o.arch : arch, r->o.deployment, &r->generated);
}

static lathe_options engine_options(run *r) {
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = r->generated.directory;
    o.device = r->o.device;
    o.seed = r->o.schedule;
    o.cache = r->o.cache;
    o.kv_pages = r->o.pages;
    o.timeout_ns = (uint64_t)r->o.timeout_ms * 1000000u;
    o.log = show_progress;
    o.log_context = r;
    return o;
}

static int create_engine(run *r) {
    const lathe_options o = engine_options(r);
    const lathe_status status =
        r->o.meet ? lathe_ranks_create_one(&o, (int)r->o.rank, r->o.meet, &r->ranks, r->message,
                                           sizeof r->message)
                  : lathe_ranks_create(&o, &r->ranks, r->message, sizeof r->message);
    if (status != LATHE_OK)
        return fail(status, r->message);
    /* Ranks in processes of their own hear of it together, in lathe_build. */
    for (int rank = 0; rank < r->ranks.count && !r->o.meet; ++rank) {
        const char *reason = lathe_unsupported(r->ranks.engines[rank]);
        if (reason)
            return fail(LATHE_UNSUPPORTED, reason);
    }
    r->table = lathe_engine_table(r->ranks.engines[0]);
    if (r->o.inject.rank >= r->ranks.world) {
        snprintf(r->message, sizeof r->message, "--inject: rank %d; allowed: 0 to %d",
                 r->o.inject.rank, r->ranks.world - 1);
        return fail(LATHE_INVALID, r->message);
    }
    r->o.inject.rank -= r->ranks.first; /* from here on among the ranks of this process */
    if (r->o.inject.rank < 0 || r->o.inject.rank >= r->ranks.count)
        r->o.inject = (lathe_inject){LATHE_INJECT_NOTHING, 0, 0, 0};
    return lathe_generated_check(&r->generated, r->o.target, r->table, r->o.tp, r->o.arch,
                                 r->o.deployment, r->message, sizeof r->message) == LATHE_OK
               ? LATHE_EXIT_OK
               : fail(LATHE_INVALID, r->message);
}

static int open_weights(run *r) {
    const lathe_status status = lathe_opened_weights_open(r->o.weights, r->table, &r->weights,
                                                          r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

static int build(run *r) {
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    lathe_expert_shards shards[LATHE_GROUP_MAX];
    for (int rank = 0; rank < r->ranks.count; ++rank) {
        weights[rank] = (lathe_weights){r->table, r->ranks.first + rank, r->weights.reader};
        sources[rank] = lathe_weights_source(&weights[rank]);
        shards[rank] = (lathe_expert_shards){r->ranks.first + rank, r->ranks.world, 0};
        sources[rank].experts = r->o.experts_by_rank ? &shards[rank] : NULL;
    }
    const lathe_status status =
        lathe_ranks_build(&r->ranks, sources, r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

/* A device makes synthetic weights by code of its own. */
static int check_weights(run *r) {
    lathe_check_weights_result result = {0};
    for (int rank = 0; rank < r->ranks.count; ++rank) {
        const lathe_weights weights = {r->table, r->ranks.first + rank, r->weights.reader};
        const lathe_status status = lathe_check_weights(r->ranks.engines[rank], &weights, stdout,
                                                        &result, r->message, sizeof r->message);
        if (status != LATHE_OK)
            return fail(status, r->message);
    }
    printf("weights: %lld tensors, %lld of %lld elements compared with the host's, %lld tensors "
           "differ\n",
           (long long)result.tensors, (long long)result.elements, (long long)result.all,
           (long long)result.failed);
    show_time(r, "weights compared");
    r->wrong = (int)result.failed;
    return LATHE_EXIT_OK;
}

static int open_against(run *r) {
    const lathe_options o = engine_options(r);
    if (!r->o.against)
        return LATHE_EXIT_OK;
    const lathe_against_what what = {.layout = r->o.target,
                                     .what = r->o.against,
                                     .arch = r->table->arch,
                                     .options = &o,
                                     .reader = r->weights.reader};
    const lathe_status status =
        lathe_against_open(&what, &r->against, r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

/* The outputs of one step against the other deployment's. */
static int compare_against(run *r, int variant, int64_t context, uint64_t seed, double noise,
                           int *failed) {
    const lathe_outputs_step step = {.engines = r->ranks.engines,
                                     .ranks = r->ranks.count,
                                     .variant = variant,
                                     .seed = seed,
                                     .context = context};
    const lathe_status status = lathe_against_compare(r->against, &step, noise, stdout, failed,
                                                      r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

static int make_images(run *r) {
    for (int rank = 0; rank < r->ranks.count; ++rank) {
        r->images[rank] = lathe_image_create(r->ranks.engines[rank]);
        if (!r->images[rank])
            return fail(LATHE_NO_MEMORY, "no memory");
    }
    return LATHE_EXIT_OK;
}

static int check_step(run *r, int variant, int64_t context, uint64_t seed, int *failed) {
    const bool unkind = r->weights.is_synthetic && r->weights.synthetic.unkind;
    lathe_check_result result;
    const lathe_check_options o = {.engines = r->ranks.engines,
                                   .ranks = r->ranks.count,
                                   .weights = r->images,
                                   .replays = r->o.replays,
                                   .variant = variant,
                                   .seed = seed,
                                   .context = context,
                                   .padding = unkind,
                                   .whole_step = !unkind,
                                   .schedules = true,
                                   .noise = r->o.noise,
                                   .inputs = r->o.inputs,
                                   .dump = r->o.dump,
                                   .out = stdout,
                                   .timing = r->o.timing,
                                   .failures_only = r->o.failures_only};
    const lathe_status status = lathe_check(&o, &result, r->message, sizeof r->message);
    if (status != LATHE_OK)
        return fail(status, r->message);
    printf("variant %s, context %lld, seed %llu: %d launches compared, %d failures",
           r->table->variants[variant].name, (long long)(context ? context : r->table->max_context),
           (unsigned long long)seed, result.launches, result.failed);
    if (result.turned > 0)
        printf(" (%lld rows with a tie inside the launch turned)", (long long)result.turned);
    if (result.alike > 0)
        printf("; %d values alike on all ranks", result.alike);
    if (result.noise > 0)
        printf("; whole step %.1e, noise of 2^-21 jitter %.1e, %d flips", result.worst,
               result.noise, result.flips);
    if (r->replaced > 0)
        printf("; %d values replaced from files, so the whole step was not compared", r->replaced);
    putchar('\n');
    fflush(stdout);
    *failed += result.failed;
    return r->against ? compare_against(r, variant, context, seed, result.noise, failed)
                      : LATHE_EXIT_OK;
}

/* Which outputs are a rank's own share no file says: they are named. */
static void show_alike(const lathe_alike_result *a) {
    printf("%d of %d alike on all ranks", a->alike, a->alike + a->own);
    if (a->own > 0)
        printf(" (not %s%s)", a->name, a->own > 1 ? ", ..." : "");
    printf(", ");
}

static int run_step(run *r, int variant, int64_t context) {
    const lathe_run_steps_options o = {.engines = r->ranks.engines,
                                       .ranks = r->ranks.count,
                                       .variant = variant,
                                       .context = context,
                                       .seed = r->o.seed,
                                       .steps = r->o.steps,
                                       .inputs = r->o.inputs,
                                       .dump = r->o.dump,
                                       .inject = &r->o.inject,
                                       .rejoin = r->o.rejoin ? &r->ranks : NULL,
                                       .first = r->ranks.first,
                                       .group = r->o.meet ? r->ranks.groups[0] : NULL};
    lathe_run_steps_result result;
    const lathe_status status = lathe_run_steps(&o, &result, r->message, sizeof r->message);
    if (result.fault[0])
        printf("%s\nthe ranks rejoin\n", result.fault);
    if (status != LATHE_OK)
        return fail(status, r->message);
    printf("variant %s, context %lld: %lld steps, %.3f ms each, %.1f us of them to enqueue, "
           "outputs %s, ",
           r->table->variants[variant].name, (long long)(context ? context : r->table->max_context),
           (long long)r->o.steps, result.milliseconds, result.enqueue_us,
           result.identical ? "identical" : "NOT IDENTICAL");
    if (r->ranks.world > 1)
        show_alike(&result.alike);
    if (r->o.inject.kind == LATHE_INJECT_NAN)
        printf("%lld NaN on every rank after step %lld, ", (long long)result.nan,
               (long long)r->o.inject.step);
    if (result.allocations == 0 && result.waits == 0)
        puts("no allocation, no wait in lathe_run");
    else
        printf("%llu ALLOCATIONS, %llu WAITS in lathe_run\n",
               (unsigned long long)result.allocations, (unsigned long long)result.waits);
    return result.identical && result.allocations == 0 && result.waits == 0 ? LATHE_EXIT_OK
                                                                            : LATHE_EXIT_CHECK;
}

/* A context that is too short for a variant's tokens is not one of its cases. */
static bool is_served(const run *r, int variant, int64_t context) {
    return context == 0 || context >= r->table->variants[variant].q;
}

static int run_context(run *r, int variant, int64_t context, int *failed) {
    int status = LATHE_EXIT_OK;
    if (!is_served(r, variant, context)) {
        printf("variant %s, context %lld: left out, shorter than the variant's %lld tokens\n",
               r->table->variants[variant].name, (long long)context,
               (long long)r->table->variants[variant].q);
        return status;
    }
    ++r->runs;
    if (!r->o.check)
        return run_step(r, variant, context);
    for (int64_t s = 0; status == LATHE_EXIT_OK && s < r->o.steps; ++s)
        status = check_step(r, variant, context, r->o.seed + (uint64_t)s, failed);
    return status;
}

/* -1 for all variants; the name that was given and the files must exist. */
static int choose_variant(run *r, int *variant) {
    *variant = -1;
    if (r->o.inputs && lathe_step_files_exist(r->o.inputs)) {
        const lathe_status status =
            lathe_step_files_variant(r->table, r->o.inputs, variant, r->message, sizeof r->message);
        return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
    }
    if (!r->o.variant)
        return LATHE_EXIT_OK;
    for (int i = 0; i < r->table->variant_count; ++i)
        if (strcmp(r->table->variants[i].name, r->o.variant) == 0)
            *variant = i;
    if (*variant >= 0)
        return LATHE_EXIT_OK;
    size_t n = (size_t)snprintf(r->message, sizeof r->message,
                                "no variant '%s'; declared are:", r->o.variant);
    for (int i = 0; i < r->table->variant_count && n < sizeof r->message; ++i)
        n += (size_t)snprintf(r->message + n, sizeof r->message - n, " %s",
                              r->table->variants[i].name);
    return fail(LATHE_INVALID, r->message);
}

/* Every file of --inputs has a place, before anything runs. */
static int check_inputs(run *r, int variant) {
    if (!r->o.inputs)
        return LATHE_EXIT_OK;
    const lathe_input_files files = {.folder = r->o.inputs,
                                     .engines = r->ranks.engines,
                                     .ranks = r->ranks.count,
                                     .variant = variant,
                                     .check = r->o.check};
    const lathe_status status =
        lathe_input_files_check(&files, &r->replaced, r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

static int run_variants(run *r) {
    int only = -1;
    int failed = r->wrong;
    int status = choose_variant(r, &only);
    if (status == LATHE_EXIT_OK)
        status = check_inputs(r, only);
    for (int v = 0; status == LATHE_EXIT_OK && v < r->table->variant_count; ++v) {
        if (only >= 0 && v != only)
            continue;
        if (r->o.context_count == 0)
            status = run_context(r, v, 0, &failed);
        for (int i = 0; status == LATHE_EXIT_OK && i < r->o.context_count; ++i)
            status = run_context(r, v, r->o.contexts[i], &failed);
    }
    if (status == LATHE_EXIT_OK && r->runs == 0)
        return fail(LATHE_INVALID, "nothing was run: every context is shorter than the tokens of "
                                   "its variant; allowed: --context from a variant's q on");
    if (status == LATHE_EXIT_OK && r->o.check)
        printf("%s\n", failed ? "check FAILED" : "check passed");
    return status == LATHE_EXIT_OK && failed ? LATHE_EXIT_CHECK : status;
}

static int make_dump_folder(run *r) {
    struct stat st;
    if (!r->o.dump || mkdir(r->o.dump, 0777) == 0 ||
        (errno == EEXIST && stat(r->o.dump, &st) == 0 && S_ISDIR(st.st_mode)))
        return LATHE_EXIT_OK;
    snprintf(r->message, sizeof r->message, "--dump %s: %s", r->o.dump,
             errno == EEXIST ? "it is no folder" : strerror(errno));
    return fail(LATHE_IO, r->message);
}

static int open_inputs(run *r) {
    if (!r->o.inputs)
        return LATHE_EXIT_OK;
    const lathe_status status = lathe_input_files_open(r->o.inputs, r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

static void clean_up(run *r) {
    lathe_watchdog_stop();
    for (int rank = 0; rank < r->ranks.count; ++rank)
        lathe_image_destroy(r->images[rank]);
    lathe_against_close(r->against);
    lathe_ranks_destroy(&r->ranks);
    lathe_opened_weights_close(&r->weights);
    lathe_generated_close(&r->generated);
    free(r);
}

static bool is_for_generating(const char *option) {
    return strcmp(option, "--tp") == 0 || strcmp(option, "--arch") == 0 ||
           strcmp(option, "--deployment") == 0;
}

/* The same command, once per rank, on what was generated. */
static int run_processes(run *r, int argc, char **argv) {
    char *options[64];
    int n = 0, count = 0;
    const lathe_status status =
        lathe_ranks_count(r->generated.directory, &count, r->message, sizeof r->message);
    if (status != LATHE_OK)
        return fail(status, r->message);
    for (int i = 1; i < argc && n < 60; ++i) {
        if (r->generated.temporary && is_for_generating(argv[i]))
            ++i;
        else if (strcmp(argv[i], "--processes") != 0 && argv[i] != r->o.target)
            options[n++] = argv[i];
    }
    options[n] = NULL;
    const lathe_processes p = {
        .count = count, .options = options, .target = r->generated.directory};
    return lathe_processes_run(&p);
}

/* A rank that another process started does not outlive it. */
static int follow_parent(const run *r) {
    return r->o.meet && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0
               ? fail(LATHE_IO, "the process that started this rank cannot be watched")
               : LATHE_EXIT_OK;
}

static int check_rank_folders(run *r) {
    if (!r->o.inputs)
        return LATHE_EXIT_OK;
    const lathe_status status =
        lathe_input_files_check_ranks(r->o.inputs, r->table->tp, r->message, sizeof r->message);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(status, r->message);
}

static int run_here(run *r) {
    int status = create_engine(r);
    if (status == LATHE_EXIT_OK)
        status = check_rank_folders(r);
    if (r->o.device == LATHE_DEVICE_HOST)
        lathe_watchdog_start(r->ranks.count);
    if (status == LATHE_EXIT_OK)
        status = open_weights(r);
    if (status == LATHE_EXIT_OK)
        status = build(r);
    if (status == LATHE_EXIT_OK && r->o.check && r->weights.is_synthetic)
        status = check_weights(r);
    if (status == LATHE_EXIT_OK && r->o.check)
        status = make_images(r);
    if (status == LATHE_EXIT_OK && r->o.check)
        status = open_against(r);
    return status == LATHE_EXIT_OK ? run_variants(r) : status;
}

int lathe_cmd_run(int argc, char **argv) {
    run *r = calloc(1, sizeof *r);
    if (!r)
        return fail(LATHE_NO_MEMORY, "no memory");
    int status = lathe_run_options_parse(argc, argv, &r->o);
    if (status != 0) {
        free(r);
        return status - 1;
    }
    r->began = lathe_seconds();
    status = make_dump_folder(r);
    if (status == LATHE_EXIT_OK)
        status = open_inputs(r);
    if (status == LATHE_EXIT_OK)
        status = open_generated(r);
    if (status == LATHE_EXIT_OK)
        status = follow_parent(r);
    if (status == LATHE_EXIT_OK)
        status = r->o.processes ? run_processes(r, argc, argv) : run_here(r);
    clean_up(r);
    return status;
}
