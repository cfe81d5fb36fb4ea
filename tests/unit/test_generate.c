/* SPDX-License-Identifier: Apache-2.0
 * Tokens in, tokens out: the same at every TP size, with drafts and without, from a checkpoint and
 * from the weights that it was written from. Synthetic heads keep the greatest logit far from the
 * second; that it is, and that the logits agree at every TP size (the caches' part in them is far
 * larger than the tolerance), is checked here. Drafts change no bit of an invariant deployment's.
 * tests/python compares with an independent model. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "decode.h"
#include "decode_pages.h"
#include "files.h"
#include "generated.h"
#include "ranks.h"
#include "synthetic.h"
#include "token_list.h"
#include "weights.h"

#define TINY LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua"
#define MINI LATHE_SOURCE_DIR "/layouts/cases/mini.lua"
#define VOCABULARY 512 /* of both the tiny layout and the expected shift below */
#define PROMPT 10
#define STEPS 6
#define TOLERANCE 1.5e-2 /* design.md, "What a number may be off by", line 3 */

static const int32_t prompt[PROMPT] = {7, 91, 3, 500, 64, 2, 2, 311, 8, 10};
/* Seed 3: the token that follows t is t + 1 + 3 (runtime/synthetic.c). An independent model of 1,
 * 2, 4 and 16 ranks takes the same routes with these weights (tests/python checks that), so what
 * logits differ by between TP sizes is rounding and the NVFP4 codes that it carries over a tie. */
static const int32_t expected[STEPS] = {14, 18, 22, 26, 30, 34};
static lathe_synthetic synthetic = {false, 3};
static char message[4096];

/* One model, built, and what it yielded last. */
typedef struct {
    lathe_generated generated;
    lathe_ranks ranks;
    int64_t count; /* yielded */
    int32_t tokens[STEPS];
    float logits[STEPS][VOCABULARY];
    lathe_decode_result result;
} model;

static void open_model(model *m, const char *tp, const char *deployment) {
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    lathe_options o = LATHE_OPTIONS_INIT;
    cr_assert_eq(lathe_generated_open("gen", TINY, tp, "host", deployment, &m->generated),
                 LATHE_EXIT_OK);
    o.directory = m->generated.directory;
    cr_assert_eq(lathe_ranks_create(&o, &m->ranks, message, sizeof message), LATHE_OK, "%s",
                 message);
    const lathe_step_table *t = lathe_engine_table(m->ranks.engines[0]);
    for (int r = 0; r < m->ranks.count; ++r) {
        weights[r] = (lathe_weights){t, r, lathe_synthetic_reader(&synthetic)};
        sources[r] = lathe_weights_source(&weights[r]);
    }
    cr_assert_eq(lathe_ranks_build(&m->ranks, sources, message, sizeof message), LATHE_OK, "%s",
                 message);
}

static void close_model(model *m) {
    lathe_ranks_destroy(&m->ranks);
    lathe_generated_close(&m->generated);
}

static void keep(void *context, int64_t number, int32_t token, const float *logits, int64_t count) {
    model *m = context;
    cr_assert(number == m->count && number < STEPS && count == VOCABULARY);
    m->tokens[m->count++] = token;
    memcpy(m->logits[number], logits, sizeof m->logits[number]);
}

static void decode_some(model *m, const int32_t *draft, int64_t count) {
    const lathe_decode_options o = {.engines = m->ranks.engines,
                                    .ranks = m->ranks.count,
                                    .prompt = prompt,
                                    .prompt_count = PROMPT,
                                    .steps = STEPS,
                                    .draft = draft,
                                    .draft_count = count,
                                    .emit = keep,
                                    .context = m};
    const lathe_step_table *t = lathe_engine_table(m->ranks.engines[0]);
    m->count = 0;
    cr_assert_eq(lathe_decode_check(t, &o, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_eq(lathe_decode(&o, &m->result, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_eq(m->count, STEPS);
    cr_assert_arr_eq(m->tokens, expected, sizeof expected);
}

static void decode(model *m, const int32_t *draft) {
    decode_some(m, draft, draft ? STEPS : 0);
}

/* The smallest distance of the greatest logit from the second. */
static double margin(const model *m) {
    double least = INFINITY;
    for (int s = 0; s < STEPS; ++s) {
        double second = -INFINITY;
        const double first = (double)m->logits[s][m->tokens[s]];
        for (int i = 0; i < VOCABULARY; ++i)
            if (i != m->tokens[s])
                second = fmax(second, (double)m->logits[s][i]);
        least = fmin(least, first - second);
    }
    return least;
}

/* Every margin is more than ten times what the logits differ by (root mean square); returns that
 * over the norm. */
static double expect_clear(const model *a, const model *b) {
    double difference = 0, norm = 0;
    for (int s = 0; s < STEPS; ++s)
        for (int i = 0; i < VOCABULARY; ++i) {
            const double d = (double)a->logits[s][i] - (double)b->logits[s][i];
            difference += d * d;
            norm += (double)a->logits[s][i] * (double)a->logits[s][i];
        }
    const double noise = sqrt(difference / (STEPS * VOCABULARY));
    cr_assert_gt(margin(a), 10 * noise, "margin %g, noise %g", margin(a), noise);
    return sqrt(difference / norm);
}

static void expect_alike(const model *a, const model *b) {
    const double distance = expect_clear(a, b);
    cr_assert_leq(distance, TOLERANCE, "%g", distance);
}

static void expect_same_bits(const model *a, const model *b) {
    cr_assert_eq(memcmp(a->logits, b->logits, sizeof a->logits), 0, "%g", expect_clear(a, b));
}

/* Proposals that are right with a chance of 3 in 4, else any token, or none. */
static void draw_draft(uint64_t seed, int32_t *draft) {
    for (uint64_t i = 0; i < STEPS; ++i) {
        const uint64_t bits = lathe_synthetic_bits(seed, i);
        draft[i] = bits % 4 ? expected[i] : (int32_t)(bits >> 32 & 511);
        if (bits % 16 == 4)
            draft[i] = LATHE_DECODE_NONE;
    }
}

TestSuite(generate, .init = cr_redirect_stdout);

Test(generate, drafts_change_no_bit) {
    static model plain, drafted;
    int32_t draft[STEPS];
    open_model(&plain, "1", "invariant");
    drafted = plain; /* the same engine */
    decode(&plain, NULL);
    cr_assert_eq(plain.result.steps, 2 + STEPS - 1);
    cr_assert_eq(plain.result.proposed, 0);
    /* 8 of the prompt; the other 2, one right and one wrong proposal; then one by one. What was
     * right goes through no second step. */
    const int32_t half[] = {expected[0], 0, LATHE_DECODE_NONE};
    decode_some(&drafted, half, 3);
    cr_assert_eq(drafted.result.steps, 2 + STEPS - 2);
    int64_t rejected = 0;
    for (uint64_t seed = 10; seed <= 11; ++seed) {
        draw_draft(seed, draft);
        decode(&drafted, draft);
        expect_same_bits(&plain, &drafted);
        rejected += drafted.result.proposed - drafted.result.accepted;
    }
    cr_assert_geq(rejected, 4, "the drafts must be wrong too, found %lld", (long long)rejected);
    /* All right: the rest of the prompt and five proposals in one step. */
    decode(&drafted, expected);
    cr_assert_eq(drafted.result.steps, 2);
    cr_assert_eq(drafted.result.accepted, STEPS - 1);
    expect_same_bits(&plain, &drafted);
    close_model(&plain);
}

/* Nothing but the caches tells the two prompts apart: their last tokens are the same. */
Test(generate, the_caches_weigh_in_the_logits) {
    static model one, other;
    int32_t changed[PROMPT];
    open_model(&one, "1", NULL);
    other = one;
    decode(&one, expected);
    memcpy(changed, prompt, sizeof changed);
    changed[PROMPT - 2] = 77;
    const lathe_decode_options o = {.engines = other.ranks.engines,
                                    .ranks = 1,
                                    .prompt = changed,
                                    .prompt_count = PROMPT,
                                    .steps = STEPS,
                                    .draft = expected,
                                    .draft_count = STEPS,
                                    .emit = keep,
                                    .context = &other};
    other.count = 0;
    cr_assert_eq(lathe_decode(&o, &other.result, message, sizeof message), LATHE_OK, "%s", message);
    double difference = 0, norm = 0;
    for (int i = 0; i < VOCABULARY; ++i) {
        const double d = (double)one.logits[0][i] - (double)other.logits[0][i];
        difference += d * d;
        norm += (double)one.logits[0][i] * (double)one.logits[0][i];
    }
    cr_assert_gt(sqrt(difference / norm), 2 * TOLERANCE, "%g", sqrt(difference / norm));
    close_model(&one);
}

Test(generate, every_tp_size_yields_the_same) {
    static model one, other;
    static const char *const sizes[] = {"2", "4", "16"};
    open_model(&one, "1", NULL);
    decode(&one, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        open_model(&other, sizes[i], NULL);
        decode(&other, expected); /* of few steps: those of many ranks are long */
        expect_alike(&one, &other);
        close_model(&other);
    }
    close_model(&one);
}

/* ---- pages ---- */

Test(generate, pages_are_given_back) {
    int32_t table[8] = {0}, free_pages[8] = {5, 3, 1};
    lathe_decode_pages p = {
        .unit = 16, .width = 8, .table = table, .free = free_pages, .free_count = 3};
    cr_assert(lathe_decode_pages_reserve(&p, 17));
    cr_assert(p.used == 2 && table[0] == 1 && table[1] == 3);
    cr_assert_eq(lathe_decode_pages_slot(&p, 16), 3 * 16);
    cr_assert_eq(lathe_decode_pages_slot(&p, 15), 16 + 15);
    cr_assert(lathe_decode_pages_reserve(&p, 48));
    cr_assert_not(lathe_decode_pages_reserve(&p, 49));
    lathe_decode_pages_rewind(&p, 16);
    cr_assert(p.used == 1 && p.free_count == 2);
    lathe_decode_pages_rewind(&p, 16);
    cr_assert_eq(p.used, 1);
    cr_assert(lathe_decode_pages_reserve(&p, 48));
    cr_assert_not(lathe_decode_pages_reserve(&p, 129));
}

Test(generate, token_lists_are_parsed) {
    lathe_token_list l;
    cr_assert_eq(lathe_token_list_parse("1, 2\n-1 ,44", "x", &l, message, sizeof message),
                 LATHE_OK);
    const int32_t wanted[] = {1, 2, -1, 44};
    cr_assert_eq(l.count, 4);
    cr_assert_arr_eq(l.tokens, wanted, sizeof wanted);
    lathe_token_list_free(&l);
    static const char *const bad[] = {"1\n2x",  "1\n99999999999", "1\n-",
                                      "1\n,,2", "\n,1",           "1,\n,2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
        cr_assert_eq(lathe_token_list_parse(bad[i], "x", &l, message, sizeof message),
                     LATHE_INVALID);
        cr_assert(strstr(message, "x:2: found '"), "%s", message);
        lathe_token_list_free(&l);
    }
    cr_assert_eq(lathe_token_list_parse("1,2,\n", "x", &l, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "x:2: found the end, allowed: token ids with one comma"), "%s",
              message);
    lathe_token_list_free(&l);
}

/* ---- the command ---- */

static char folder[64];

static void make_folder(void) {
    strcpy(folder, "test_generate_XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void) {
    lathe_folder_remove(folder);
}

typedef int command(int argc, char **argv);

/* Exit status; what was printed goes to `said`. */
static char said[8192];
static int run(command *c, FILE *stream, const char *const *words) {
    char *argv[32] = {(char *)(uintptr_t) "command"};
    int argc = 1;
    for (; words[argc - 1]; ++argc)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    fflush(stream);
    const int old = dup(fileno(stream));
    FILE *kept = tmpfile();
    cr_assert(kept && dup2(fileno(kept), fileno(stream)) >= 0);
    const int status = c(argc, argv);
    fflush(stream);
    dup2(old, fileno(stream));
    close(old);
    rewind(kept);
    said[fread(said, 1, sizeof said - 1, kept)] = 0;
    fclose(kept);
    return status;
}

#define RUN(c, stream, ...) run(c, stream, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED(what, ...)                                                                         \
    do {                                                                                           \
        cr_assert_eq(RUN(lathe_cmd_generate, stderr, __VA_ARGS__), LATHE_EXIT_USAGE, "%s", said);  \
        cr_assert(strstr(said, what), "%s", said);                                                 \
    } while (0)

TestSuite(cmd_generate, .init = make_folder, .fini = remove_folder);

Test(cmd_generate, a_checkpoint_yields_what_its_weights_yield) {
    cr_assert_eq(RUN(lathe_cmd_checkpoint, stdout, "--synthetic", "3", MINI, "--out", folder),
                 LATHE_EXIT_OK);
    cr_assert_eq(RUN(lathe_cmd_generate, stdout, MINI, "--weights", folder, "--tokens", "120,5",
                     "--steps", "4"),
                 LATHE_EXIT_OK);
    cr_assert_str_eq(said, "9,13,17,21\n");
}

/* Slices made of the ranks' whole experts have the bits of those cut from full weights. */
Test(cmd_generate, whole_experts_by_rank_yield_the_same) {
    cr_assert_eq(RUN(lathe_cmd_generate, stdout, TINY, "--tp", "2", "--weights", "calm:3",
                     "--tokens", "7,91,3", "--steps", "2", "--experts", "ep"),
                 LATHE_EXIT_OK);
    cr_assert_str_eq(said, "7,11\n");
    REFUSED("--experts 'half'; allowed: full, ep", TINY, "--weights", "calm:3", "--tokens", "1",
            "--steps", "1", "--experts", "half");
    REFUSED("experts by rank: the step slices no experts", MINI, "--weights", "calm:3", "--tokens",
            "1", "--steps", "1", "--experts", "ep");
}

/* Of rows of 8 only: what fills them must not be seen. The last token is the 64th. */
Test(cmd_generate, the_context_is_used_to_its_end_and_no_further) {
    char path[128], tokens[512] = "1";
    for (int i = 1; i < 56; ++i)
        strcat(tokens, ",1");
    snprintf(path, sizeof path, "%s/logits.npy", folder);
    cr_assert_eq(RUN(lathe_cmd_generate, stdout, MINI, "--weights", "calm:3", "--tokens", tokens,
                     "--steps", "2", "--logits", path),
                 LATHE_EXIT_OK);
    cr_assert_str_eq(said, "5,9\n");
    cr_assert_eq(access(path, R_OK), 0);
    REFUSED("found 56 tokens of prompt and 3 steps, allowed: at most 2 steps (max_context 64", MINI,
            "--weights", "calm:3", "--tokens", tokens, "--steps", "3");
}

Test(cmd_generate, what_cannot_be_done_is_said_before_it_starts) {
    char path[128];
    REFUSED("--tokens: token 1 is 128; allowed: 0 to 127", MINI, "--weights", "calm:3", "--tokens",
            "5,128", "--steps", "2");
    REFUSED("--tokens:1: found '5x'", MINI, "--weights", "calm:3", "--tokens", "5x", "--steps",
            "2");
    REFUSED("no output next_tokens", LATHE_SOURCE_DIR "/layouts/toy.lua", "--weights", "calm:3",
            "--tokens", "5", "--steps", "2");
    REFUSED("without '--tokens'", MINI, "--weights", "calm:3", "--steps", "2");
    REFUSED("without '--weights'", MINI, "--tokens", "3", "--steps", "2");
    REFUSED("a prompt and a step are needed", MINI, "--weights", "calm:3", "--tokens", "",
            "--steps", "2");
    REFUSED("a number from 1", MINI, "--steps", "0");
    REFUSED("no/such/file: No such file", MINI, "--weights", "calm:3", "--tokens", "5", "--steps",
            "2", "--draft", "no/such/file");
    REFUSED("no/such/checkpoint", MINI, "--weights", "no/such/checkpoint", "--tokens", "5",
            "--steps", "2");
    snprintf(path, sizeof path, "%s/draft", folder);
    cr_assert_eq(lathe_file_write(path, "3\n-2\n", 5), 0);
    REFUSED("--draft: token 1 is -2", MINI, "--weights", "calm:3", "--tokens", "5", "--steps", "2",
            "--draft", path);
    cr_assert_eq(lathe_file_write(path, "3\n\0002", 4), 0);
    REFUSED("draft:2: found a byte of 0", MINI, "--weights", "calm:3", "--tokens", "5", "--steps",
            "2", "--draft", path);
    REFUSED("lathe generate: no/such.lua: ", "no/such.lua", "--weights", "calm:3", "--tokens", "5",
            "--steps", "2");
}

Test(cmd_generate, a_file_of_logits_is_opened_first) {
    char path[128];
    snprintf(path, sizeof path, "%s/none/logits.npy", folder);
    REFUSED("none/logits.npy: No such file", MINI, "--weights", "no/such/checkpoint", "--tokens",
            "5", "--steps", "1", "--logits", path);
    REFUSED("Is a directory", MINI, "--weights", "no/such/checkpoint", "--tokens", "5", "--steps",
            "1", "--logits", folder);
    snprintf(path, sizeof path, "%s/logits.npy", folder);
    REFUSED("no/such/checkpoint: No such file", MINI, "--weights", "no/such/checkpoint", "--tokens",
            "5", "--steps", "1", "--logits", path);
    cr_assert_neq(access(path, F_OK), 0);
    cr_assert_eq(lathe_file_write(path, "mine", 4), 0);
    REFUSED("no/such/checkpoint: No such file", MINI, "--weights", "no/such/checkpoint", "--tokens",
            "5", "--steps", "1", "--logits", path);
    cr_assert_eq(access(path, F_OK), 0);
}

/* Gains near the end of bf16's range are finite, what they scale is not. */
static void exaggerate(const char *tensor) {
    lathe_safetensors *c;
    char path[512], *data;
    size_t bytes;
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK);
    const lathe_safetensor *t = lathe_safetensors_find(c, tensor);
    cr_assert_not_null(t);
    snprintf(path, sizeof path, "%s", t->file);
    cr_assert_eq(lathe_file_read(path, 1 << 24, &data, &bytes), 0);
    char *at = memmem(data, bytes, t->data, t->bytes);
    cr_assert_not_null(at);
    for (size_t i = 0; i < t->bytes; i += 2)
        memcpy(at + i, "\x7f\x7f", 2);
    lathe_safetensors_close(c);
    cr_assert_eq(lathe_file_write(path, data, bytes), 0);
    free(data);
}

Test(cmd_generate, logits_that_are_no_numbers_give_no_token) {
    cr_assert_eq(RUN(lathe_cmd_checkpoint, stdout, "--synthetic", "3", MINI, "--out", folder),
                 LATHE_EXIT_OK);
    exaggerate("model.language_model.norm.weight");
    REFUSED("lathe generate: the logits behind position 1 are not finite (NaN, of token ", MINI,
            "--weights", folder, "--tokens", "120,5", "--steps", "4");
}
