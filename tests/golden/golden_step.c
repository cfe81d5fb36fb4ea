/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint_check.h"
#include "golden_step.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "step_files.h"

static char message[8192];

static void build_ranks(golden_step *f) {
    lathe_weights weights[LATHE_GROUP_MAX];
    lathe_weight_source sources[LATHE_GROUP_MAX];
    for (int rank = 0; rank < f->ranks.count; ++rank) {
        weights[rank] = (lathe_weights){lathe_engine_table(f->engine), rank,
                                        lathe_weights_checkpoint(f->checkpoint)};
        sources[rank] = lathe_weights_source(&weights[rank]);
    }
    cr_assert_eq(lathe_ranks_build(&f->ranks, sources, message, sizeof message), LATHE_OK, "%s",
                 message);
}

static void open_engines(golden_step *f, const char *name, const char *deployment) {
    char path[1200];
    char tp[16];
    lathe_options o = LATHE_OPTIONS_INIT;
    snprintf(path, sizeof path, LATHE_SOURCE_DIR "/layouts/cases/%s.lua", name);
    snprintf(tp, sizeof tp, "%d", f->c.tp);
    cr_assert_eq(lathe_generated_open("gen", path, tp, "host", deployment, &f->generated),
                 LATHE_EXIT_OK);
    o.directory = f->generated.directory;
    o.kv_pages = f->c.pages;
    cr_assert_eq(lathe_ranks_create(&o, &f->ranks, message, sizeof message), LATHE_OK, "%s",
                 message);
    f->engine = f->ranks.engines[0];
    snprintf(path, sizeof path, "%s/checkpoint", f->c.path);
    cr_assert_eq(lathe_safetensors_open(path, &f->checkpoint, message, sizeof message), LATHE_OK,
                 "%s", message);
    const lathe_step_table *table = lathe_engine_table(f->engine);
    cr_assert_eq(lathe_checkpoint_check(table, f->checkpoint, message, sizeof message), LATHE_OK,
                 "%s", message);
    build_ranks(f);
}

bool golden_step_open(golden_step *f, const char *name) {
    return golden_step_open_run(f, name, "tp1", NULL);
}

bool golden_step_open_run(golden_step *f, const char *name, const char *run,
                          const char *deployment) {
    char path[1024];
    char probe[1200];
    const char *more = getenv("LATHE_CASES");
    memset(f, 0, sizeof *f);
    snprintf(path, sizeof path, LATHE_SOURCE_DIR "/tests/golden/%s", name);
    snprintf(probe, sizeof probe, "%s/case.json", path);
    if (access(probe, R_OK) != 0 && more)
        snprintf(path, sizeof path, "%s/%s", more, name);
    snprintf(probe, sizeof probe, "%s/case.json", path);
    if (access(probe, R_OK) != 0)
        return false;
    golden_case_open(&f->c, path, run);
    f->split_count = golden_case_split(&f->c, f->splits, GOLDEN_SPLITS);
    snprintf(f->folder, sizeof f->folder, "golden_XXXXXX");
    cr_assert_not_null(mkdtemp(f->folder));
    open_engines(f, name, deployment);
    return true;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void golden_step_close(golden_step *f) {
    lathe_ranks_destroy(&f->ranks);
    lathe_safetensors_close(f->checkpoint);
    lathe_generated_close(&f->generated);
    nftw(f->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void golden_step_folder(const golden_step *f, const char *name, int split, char *path,
                        size_t size) {
    snprintf(path, size, "%s/%s%d", f->folder, name, split);
    cr_assert_eq(mkdir(path, 0777), 0);
}

lathe_check_result golden_step_check(golden_step *f, const char *inputs, const char *dump,
                                     bool whole) {
    lathe_check_result result;
    lathe_check_options o = {.engines = f->ranks.engines,
                             .ranks = f->ranks.count,
                             .seed = 1,
                             .whole_step = whole,
                             .schedules = whole,
                             .noise = f->c.hidden_noise > f->c.logits_noise ? f->c.hidden_noise
                                                                            : f->c.logits_noise,
                             .inputs = inputs,
                             .dump = dump,
                             .out = stderr,
                             .failures_only = true};
    cr_assert_eq(lathe_step_files_variant(lathe_engine_table(f->engine), inputs, &o.variant,
                                          message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(lathe_check(&o, &result, message, sizeof message), LATHE_OK, "%s", message);
    return result;
}
