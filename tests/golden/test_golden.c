/* SPDX-License-Identifier: Apache-2.0
 * The golden cases on the host device: launch by launch with the oracle's inputs, and as whole
 * steps where they are calm. A case of mixed query lengths is taken in parts, one per length. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "generated.h"
#include "golden_case.h"
#include "golden_compare.h"
#include "step_files.h"
#include "weights.h"

#define SPLITS 8

typedef struct {
    golden_case c;
    golden_split splits[SPLITS];
    int split_count;
    lathe_generated generated;
    lathe_safetensors *checkpoint;
    lathe_weights weights;
    lathe_engine *engine;
    char folder[64]; /* inputs and dumps */
} fixture;

static char message[8192];

static void open_engine(fixture *f, const char *name) {
    char path[1200];
    lathe_options o = LATHE_OPTIONS_INIT;
    snprintf(path, sizeof path, LATHE_SOURCE_DIR "/layouts/cases/%s.lua", name);
    cr_assert_eq(lathe_generated_open(path, "1", "host", NULL, &f->generated), LATHE_EXIT_OK);
    o.directory = f->generated.directory;
    o.kv_pages = f->c.pages;
    cr_assert_eq(lathe_create(&o, &f->engine, message, sizeof message), LATHE_OK, "%s", message);
    snprintf(path, sizeof path, "%s/checkpoint", f->c.path);
    cr_assert_eq(lathe_safetensors_open(path, &f->checkpoint, message, sizeof message), LATHE_OK,
                 "%s", message);
    const lathe_step_table *table = lathe_engine_table(f->engine);
    cr_assert_eq(lathe_weights_check(table, f->checkpoint, message, sizeof message), LATHE_OK, "%s",
                 message);
    f->weights = (lathe_weights){table, 0, lathe_weights_checkpoint(f->checkpoint)};
    const lathe_weight_source source = lathe_weights_source(&f->weights);
    cr_assert_eq(lathe_build(f->engine, &source), LATHE_OK, "%s", lathe_message(f->engine));
}

/* False where the case is not here. */
static bool open_case(fixture *f, const char *name) {
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
    golden_case_open(&f->c, path, "tp1");
    f->split_count = golden_case_split(&f->c, f->splits, SPLITS);
    snprintf(f->folder, sizeof f->folder, "golden_XXXXXX");
    cr_assert_not_null(mkdtemp(f->folder));
    open_engine(f, name);
    return true;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void close_case(fixture *f) {
    lathe_destroy(f->engine);
    lathe_safetensors_close(f->checkpoint);
    lathe_generated_close(&f->generated);
    nftw(f->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_folder(const fixture *f, const char *name, int split, char *path, size_t size) {
    snprintf(path, size, "%s/%s%d", f->folder, name, split);
    cr_assert_eq(mkdir(path, 0777), 0);
}

static lathe_check_result check(fixture *f, const char *inputs, const char *dump, bool whole) {
    lathe_check_result result;
    lathe_check_options o = {.engines = &f->engine,
                             .ranks = 1,
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

static void check_launches(const char *name, int least) {
    fixture f;
    if (!open_case(&f, name))
        cr_skip_test("the case %s is not here (LATHE_CASES)", name);
    for (int i = 0; i < f.split_count; ++i) {
        char inputs[128];
        char dump[128];
        make_folder(&f, "inputs", i, inputs, sizeof inputs);
        make_folder(&f, "dump", i, dump, sizeof dump);
        golden_case_write_inputs(&f.c, &f.splits[i], inputs);
        golden_case_write_values(&f.c, &f.splits[i], inputs);
        const lathe_check_result result = check(&f, inputs, dump, false);
        cr_expect_eq(result.failed, 0, "%d launches fail against their references", result.failed);
        cr_expect_geq(golden_compare_values(&f.c, &f.splits[i], dump), least);
        golden_compare_rows(&f.c, &f.splits[i], dump);
        if (f.split_count == 1)
            golden_compare_metadata(&f.c, dump);
    }
    close_case(&f);
}

static void check_step(const char *name) {
    fixture f;
    char inputs[128];
    char dump[128];
    if (!open_case(&f, name))
        cr_skip_test("the case %s is not here (LATHE_CASES)", name);
    cr_assert_eq(f.split_count, 1);
    make_folder(&f, "inputs", 0, inputs, sizeof inputs);
    make_folder(&f, "dump", 0, dump, sizeof dump);
    golden_case_write_inputs(&f.c, &f.splits[0], inputs);
    const lathe_check_result result = check(&f, inputs, dump, true);
    cr_expect_eq(result.failed, 0, "%d failures", result.failed);
    cr_expect_eq(result.flips, 0);
    golden_compare_step(&f.c, &f.splits[0], dump);
    close_case(&f);
}

/* Values per case: 16 or more of every layer and 4 after the last. */
Test(golden, mini_launch_by_launch) {
    check_launches("mini", 4 * 16 + 4);
}

Test(golden, mini_whole_step) {
    check_step("mini");
}

Test(golden, calm_launch_by_launch) {
    check_launches("calm_w4a4", 5 * 16 + 4);
}

Test(golden, calm_whole_step) {
    check_step("calm_w4a4");
}

/* Unkind weights: launches only (line 3). */
Test(golden, window_edges_launch_by_launch) {
    check_launches("window_edges", 5 * 16 + 4);
}
