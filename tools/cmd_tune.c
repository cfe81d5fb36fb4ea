/* SPDX-License-Identifier: Apache-2.0
 * `lathe tune`: measures tactics on this GPU and writes the table of tactics. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command_line.h"
#include "commands.h"
#include "exit_status.h"
#include "files.h"
#include "generate.h"
#include "machine.h"
#include "tune_race.h"
#include "tune_table.h"

const char lathe_cmd_tune_summary[] = "measure tactics on a GPU and write the table of tactics";

static const char help[] =
    "usage: lathe tune DIR [--kernel PATTERN] [options]\n"
    "\n"
    "Measures the tactics that specs have for the kernels of a generated directory, in its real "
    "step on\n"
    "this GPU, until the best is told from the others by the noise or they are equal (then the\n"
    "simplest is taken), and writes layouts/tactics/GPU.lua: its other entries stay. A step of "
    "several\n"
    "ranks is timed as one rank in loop-back.\n"
    "\n"
    "  --kernel PATTERN   only the kernels whose names match (*, ?, [...])\n"
    "  --variant NAME,... batch variants  [all]\n"
    "  --list             say what there is to measure; needs no GPU\n"
    "  --build            only generate and compile it, into the cache; needs no GPU\n"
    "  --most N           tactics of a kernel at most: what rule and table take, the others "
    "evenly  [24]\n"
    "  --rounds N         of a kernel at most; a round times every tactic that is left  [160]\n"
    "  --layers N         the first N layers of the step; 0: all  [8]\n"
    "  --context N        tokens of every request  [8192, or the maximum where that is less]\n"
    "  --tactics NAME     the table: read, and written  [the GPU's last word: h200]\n"
    "  --out FILE         write the table there instead\n"
    "  --layout FILE      what DIR was generated from  [layouts/NAME.lua in a folder above it]\n"
    "  --jobs N           compilers at once  [as many as processors]\n"
    "  --cache DIR        of compiled kernels\n"
    "  --seed S           of inputs and routes  [1]\n"
    "  --timeout MS       bound on a wait for another rank  [10000]\n";

typedef struct {
    lathe_bench_engine e;
    const char *pattern, *tactics, *out, *layout;
    bool list, build;
    int64_t most, rounds, jobs;
    lathe_pool *pool;
    char folder[4096];
    lathe_tune_table table;
    lathe_tune_machine machine;
    lathe_tune_kernel *kernels;
    int kernel_count;
    lathe_tune_source source;
    int done, total; /* kernels */
    time_t began;
    const char *now; /* the kernel that is measured */
} tune;

static int fail(tune *t, lathe_status status) {
    fprintf(stderr, "lathe tune: %s\n", t->e.message);
    return lathe_exit_status(status);
}

static lathe_status refuse(tune *t, lathe_status status, const char *what, const char *which) {
    snprintf(t->e.message, sizeof t->e.message, "%.900s%.3000s", what, which);
    return status;
}

static lathe_message_buffer message_of(tune *t) {
    return (lathe_message_buffer){t->e.message, sizeof t->e.message};
}

/* ---- options ---- */

static bool take_variants(const char *text, void *to) {
    return lathe_bench_options_variants(to, text);
}

static int parse(int argc, char **argv, tune *t) {
    lathe_bench_options *o = &t->e.o;
    int64_t seed = 1;
    *o = (lathe_bench_options){.layers = 8, .timeout_ms = 10000};
    t->most = 24;
    t->rounds = 160;
    const lathe_option options[] = {
        {.name = "--kernel", .text = &t->pattern},
        {.name = "--list", .flag = &t->list},
        {.name = "--build", .flag = &t->build},
        {.name = "--tactics", .text = &t->tactics},
        {.name = "--out", .text = &t->out},
        {.name = "--layout", .text = &t->layout},
        {.name = "--cache", .text = &o->cache},
        {.name = "--most", .number = &t->most, .least = 1, .most = 4096},
        {.name = "--rounds", .number = &t->rounds, .least = LATHE_TUNE_LEAST, .most = 100000},
        {.name = "--layers", .number = &o->layers, .most = 100000},
        {.name = "--context", .number = &o->context, .least = 1, .most = INT32_MAX},
        {.name = "--jobs", .number = &t->jobs, .least = 1, .most = 1024},
        {.name = "--timeout", .number = &o->timeout_ms, .least = 1, .most = 3600000},
        {.name = "--seed", .number = &seed},
        {.name = "--variant",
         .take = take_variants,
         .to = o,
         .allowed = "at most 16 names with commas between"},
        {0}};
    const lathe_command_line line = {.command = "tune",
                                     .help = help,
                                     .options = options,
                                     .target = &o->target,
                                     .target_is = "a generated directory"};
    const int status = lathe_command_line_parse(&line, argc, argv);
    o->seed = (uint64_t)seed;
    if (t->jobs == 0)
        t->jobs = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t n = o->target ? strlen(o->target) : 0;
    if (!t->layout && n > 4 && strcmp(o->target + n - 4, ".lua") == 0)
        t->layout = o->target;
    if (status == 0 && t->list && t->build)
        return lathe_command_line_refuse("tune", "--list with", "--build", "one of them");
    return status;
}

/* ---- what there is to measure ---- */

static bool is_wanted(const tune *t, const lathe_step_table *table, const lathe_tune_kernel *k) {
    if (k->rows == 0 || k->count < 2 || (t->pattern && fnmatch(t->pattern, k->name, 0) != 0))
        return false;
    for (int i = 0; i < table->kernel_count; ++i)
        if (strcmp(table->kernels[i].name, k->name) == 0)
            return true;
    return false;
}

static lathe_status list_kernels(tune *t, const lathe_step_table *table) {
    lathe_generate_result *r = calloc(1, sizeof *r);
    char step[4200];
    if (!r || !lathe_path_join(step, sizeof step, t->folder, "all")) {
        free(r);
        return refuse(t, LATHE_NO_MEMORY, "no memory", "");
    }
    const lathe_generate_options o = {.layout = t->table.layout,
                                      .tp = table->tp,
                                      .deployment = table->deployment,
                                      .arch = table->arch,
                                      .tactics = t->table.exists ? t->table.name : NULL,
                                      .choices = (size_t)t->most,
                                      .out = step,
                                      .no_scan = true};
    lathe_status status = LATHE_OK;
    if (!lathe_generate(&o, r))
        status = refuse(t, LATHE_INVALID, r->message, "");
    else if ((t->kernel_count = lathe_tune_choices_read(r->choices, t->pool, &t->kernels)) < 0)
        status = refuse(t, LATHE_NO_MEMORY, "no memory", "");
    free(r->why);
    free(r->choices);
    free(r);
    lathe_folder_remove(step);
    int kept = 0;
    for (int i = 0; status == LATHE_OK && i < t->kernel_count; ++i)
        if (is_wanted(t, table, &t->kernels[i]))
            t->kernels[kept++] = t->kernels[i];
    t->kernel_count = kept;
    if (status == LATHE_OK && kept == 0)
        return refuse(t, LATHE_INVALID, "no kernel with several tactics matches ",
                      t->pattern ? t->pattern : "*");
    return status;
}

static lathe_status make_folder(tune *t) {
    const char *base = getenv("TMPDIR");
    if (lathe_folder_make_private(base && *base ? base : "/tmp", t->folder, sizeof t->folder) == 0)
        return LATHE_OK;
    t->folder[0] = '\0';
    return refuse(t, LATHE_IO, "no temporary folder can be made", "");
}

static lathe_status prepare(tune *t, const lathe_step_table *table) {
    lathe_status status = lathe_tune_table_open(&t->table, t->e.generated.directory, t->layout,
                                                table, t->tactics, t->machine.gpu, message_of(t));
    if (status == LATHE_OK)
        status = lathe_tune_table_check(&t->table, &t->machine, message_of(t));
    if (status == LATHE_OK)
        status = make_folder(t);
    if (status == LATHE_OK)
        status = list_kernels(t, table);
    t->source = (lathe_tune_source){.layout = t->table.layout,
                                    .tp = table->tp,
                                    .deployment = table->deployment,
                                    .arch = table->arch,
                                    .tactics = t->table.exists ? t->table.name : NULL,
                                    .folder = t->folder,
                                    .cache = t->e.o.cache};
    return status;
}

static void show_list(const tune *t) {
    for (int i = 0; i < t->kernel_count; ++i) {
        const lathe_tune_kernel *k = &t->kernels[i];
        printf("%s, %s: %d tactics\n", k->name, k->provider, k->count);
        for (int c = 0; c < k->count; ++c)
            printf("    %s%s%s\n", k->choices[c].name, k->choices[c].taken ? ", taken now" : "",
                   k->choices[c].rule ? ", the spec's rule" : "");
    }
}

/* The step's kernels as launches: all that candidates are compared with. */
static lathe_step_launch *list_launches(const tune *t, const lathe_step_table *table) {
    lathe_step_launch *l = lathe_pool_alloc(t->pool, (size_t)table->kernel_count + 1, sizeof *l);
    for (int i = 0; l && i < table->kernel_count; ++i)
        l[i] = (lathe_step_launch){.kind = LATHE_OP_LAUNCH,
                                   .kernel = &table->kernels[i],
                                   .tactic = &table->kernels[i].tactics[0],
                                   .value_count = table->kernels[i].arg_count};
    return l;
}

static lathe_status build_kernel(tune *t, const lathe_step_table *table,
                                 const lathe_tune_kernel *k) {
    const lathe_step_launch *launches = list_launches(t, table);
    lathe_tune_candidate *c = calloc((size_t)k->count, sizeof *c);
    int built = 0;
    if (!c || !launches) {
        free(c);
        return refuse(t, LATHE_NO_MEMORY, "no memory", "");
    }
    for (int i = 0; i < k->count; ++i)
        lathe_tune_candidate_make(&c[i], &t->source, k, i, launches, table->kernel_count);
    lathe_tune_candidate_compile(c, k->count, &t->source, (int)t->jobs);
    for (int i = 0; i < k->count; ++i) {
        built += !c[i].reason[0];
        if (c[i].reason[0])
            fprintf(stderr, "lathe tune: %s, %s: %s\n", k->name, k->choices[i].name, c[i].reason);
        lathe_tune_candidate_destroy(&c[i]);
    }
    free(c);
    printf("%s: %d of %d tactics build\n", k->name, built, k->count);
    return built > 0 ? LATHE_OK : refuse(t, LATHE_UNSUPPORTED, "no tactic builds of ", k->name);
}

/* ---- measuring ---- */

static void show_progress(void *context, const char *what, double share) {
    const tune *t = context;
    char line[160], text[128];
    if (!isatty(STDERR_FILENO))
        return;
    snprintf(text, sizeof text, "%s %d of %d, %s", t->now, t->done + 1, t->total, what);
    lathe_tune_progress(line, sizeof line, text, t->done + share, t->total,
                        difftime(time(NULL), t->began));
    fprintf(stderr, "\r\033[K%s", line);
}

static void show_outcome(const lathe_tune_kernel *k, const lathe_tune_outcome *out) {
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    int timed = 0;
    double rule = NAN, before = NAN;
    for (int c = 0; c < k->count; ++c) {
        timed += !isnan(out->medians[c]);
        rule = k->choices[c].rule ? out->medians[c] : rule;
        before = k->choices[c].taken ? out->medians[c] : before;
    }
    printf(
        "%s: %s, %.2f us (spread %.2f); now %.2f, the rule %.2f; %d of %d timed, %d rounds, %s\n",
        k->name, k->choices[out->taken].name, out->medians[out->taken], out->spread, before, rule,
        timed, k->count, out->rounds,
        out->racing == 1 ? "told from all others"
        : out->settled   ? "the simplest of equals"
                         : "the simplest of those that noise hides");
    for (int c = 0; c < k->count; ++c)
        if (out->reasons[c])
            fprintf(stderr, "lathe tune: %s, %s: %s\n", k->name, k->choices[c].name,
                    out->reasons[c]);
    fflush(stdout);
}

/* What is measured is kept whatever comes. */
static lathe_status write_entry(tune *t, const lathe_tune_kernel *k,
                                const lathe_tune_outcome *out) {
    const lathe_tune_measured m = {.gpu = t->machine.gpu,
                                   .toolkit = t->machine.toolkit,
                                   .driver = t->machine.driver,
                                   .date = t->machine.date,
                                   .taken = out->taken,
                                   .medians = out->medians,
                                   .spread = out->spread};
    return lathe_tune_table_put(&t->table, k, &m, t->out, message_of(t));
}

static bool is_launched(const tune *t, int variant, const char *name) {
    int count;
    const lathe_step_launch *l = lathe_engine_launches(t->e.ranks.engines[0], variant, &count);
    for (int i = 0; i < count; ++i)
        if (l[i].kind == LATHE_OP_LAUNCH && strcmp(l[i].kernel->name, name) == 0)
            return true;
    return false;
}

static lathe_status measure_kernel(tune *t, const lathe_tune_kernel *k) {
    lathe_tune_run run = {.engine = &t->e,
                          .source = &t->source,
                          .variant = -1,
                          .rounds = (int)t->rounds,
                          .jobs = (int)t->jobs,
                          .progress = show_progress,
                          .context = t};
    for (int v = 0; v < t->e.table->variant_count; ++v)
        if (run.variant < 0 && is_launched(t, v, k->name))
            run.variant = v;
    if (run.variant < 0)
        return LATHE_OK; /* of the probe, or of a layer that is cut away */
    lathe_pool *pool = lathe_pool_create();
    lathe_tune_outcome out;
    t->now = k->name;
    lathe_status status = pool ? lathe_tune_race_run(&run, k, pool, &out)
                               : refuse(t, LATHE_NO_MEMORY, "no memory", "");
    if (status == LATHE_OK) {
        show_outcome(k, &out);
        status = write_entry(t, k, &out);
    }
    lathe_pool_destroy(pool);
    return status;
}

static void describe_machine(tune *t) {
    const lathe_device *d = lathe_engine_device(t->e.ranks.engines[0]);
    lathe_machine machine;
    const time_t now = time(NULL);
    struct tm tm;
    lathe_machine_read(0, &machine);
    snprintf(t->machine.gpu, sizeof t->machine.gpu, "%.*s", (int)strcspn(d->info.description, ","),
             d->info.description);
    snprintf(t->machine.driver, sizeof t->machine.driver, "%s", machine.driver);
    lathe_bench_engine_toolkit(&t->e, t->machine.toolkit, sizeof t->machine.toolkit);
    strftime(t->machine.date, sizeof t->machine.date, "%Y-%m-%d", gmtime_r(&now, &tm));
}

static int measure(tune *t) {
    t->e.o.rank_slice = t->e.o.rank_slice || t->source.tp > 1;
    lathe_status status = lathe_bench_engine_build(&t->e);
    if (status == LATHE_OK) {
        describe_machine(t);
        status = prepare(t, t->e.table);
    }
    t->total = t->kernel_count;
    t->began = time(NULL);
    for (t->done = 0; status == LATHE_OK && t->done < t->total; ++t->done)
        status = measure_kernel(t, &t->kernels[t->done]);
    if (status != LATHE_OK)
        return fail(t, status);
    printf("%s is written; sh tools/regenerate.sh takes it up\n", t->out ? t->out : t->table.path);
    return LATHE_EXIT_OK;
}

/* Without a GPU. */
static int look(tune *t, const lathe_step_table *table) {
    if (!t->tactics)
        t->tactics = "h200"; /* a name is needed, and there is no GPU to ask */
    lathe_status status = prepare(t, table);
    if (status == LATHE_OK && t->list)
        show_list(t);
    for (int i = 0; status == LATHE_OK && t->build && i < t->kernel_count; ++i)
        status = build_kernel(t, table, &t->kernels[i]);
    return status == LATHE_OK ? LATHE_EXIT_OK : fail(t, status);
}

static int run(tune *t) {
    t->pool = lathe_pool_create();
    if (!t->pool)
        return fail(t, refuse(t, LATHE_NO_MEMORY, "no memory", ""));
    const int opened = lathe_bench_engine_open(&t->e, "tune");
    if (opened != LATHE_EXIT_OK)
        return opened;
    lathe_step_table *table;
    const lathe_status status =
        lathe_step_table_read(t->e.cut, &table, t->e.message, sizeof t->e.message);
    if (status != LATHE_OK)
        return fail(t, status);
    int result;
    if (strcmp(table->arch, "host") == 0)
        result = fail(t, refuse(t, LATHE_UNSUPPORTED,
                                "the directory is for the host device, which emulates a GPU: its "
                                "time says nothing",
                                ""));
    else if (t->list || t->build)
        result = look(t, table);
    else
        result = (t->source.tp = table->tp, measure(t));
    lathe_step_table_destroy(table);
    return result;
}

static void clean_up(tune *t) {
    lathe_bench_engine_close(&t->e);
    if (t->folder[0])
        lathe_folder_remove(t->folder);
    lathe_tune_table_close(&t->table);
    lathe_pool_destroy(t->pool);
    free(t);
}

int lathe_cmd_tune(int argc, char **argv) {
    tune *t = calloc(1, sizeof *t);
    if (!t) {
        fputs("lathe tune: no memory\n", stderr);
        return LATHE_EXIT_USAGE;
    }
    const int parsed = parse(argc, argv, t);
    const int status = parsed != 0 ? parsed - 1 : run(t);
    clean_up(t);
    return status;
}
