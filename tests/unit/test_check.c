/* SPDX-License-Identifier: Apache-2.0
 * The checker on the toy layout: it passes as generated, and every kind of fault put into a
 * generated kernel is seen. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "check_weights.h"
#include "commands.h"
#include "generated.h"
#include "named.h"
#include "synthetic.h"
#include "weights.h"

static char message[4096];
static lathe_generated generated;
static lathe_synthetic synthetic = {false, 5};
static lathe_weights weights;
static lathe_engine *engine;
static char folder[] = "test_check_XXXXXX";

static void set_up(void) {
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/toy.lua", "1", "host", NULL,
                                      &generated),
                 LATHE_EXIT_OK);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void tear_down(void) {
    lathe_destroy(engine);
    lathe_generated_close(&generated);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(check, .init = set_up, .fini = tear_down);

/* Replaces the one occurrence of `from` in a generated file. */
static void edit(const char *file, const char *from, const char *to) {
    char path[1024];
    static char text[65536];
    snprintf(path, sizeof path, "%s/%s", generated.directory, file);
    FILE *f = fopen(path, "r+");
    cr_assert_not_null(f, "%s", path);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    const char *at = strstr(text, from);
    cr_assert_not_null(at, "%s lacks %s", file, from);
    rewind(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
}

static void build(void) {
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = generated.directory;
    cr_assert_eq(lathe_create(&o, &engine, message, sizeof message), LATHE_OK, "%s", message);
    weights = (lathe_weights){lathe_engine_table(engine), 0, lathe_synthetic_reader(&synthetic)};
    const lathe_weight_source source = lathe_weights_source(&weights);
    cr_assert_eq(lathe_build(engine, &source), LATHE_OK, "%s", lathe_message(engine));
}

static int find_variant(const char *name) {
    const lathe_step_table *t = lathe_engine_table(engine);
    for (int i = 0; i < t->variant_count; ++i)
        if (strcmp(t->variants[i].name, name) == 0)
            return i;
    cr_assert_fail("no variant %s", name);
    return -1;
}

/* Checks the variant 1x8; the table goes to `table`. */
static lathe_check_result check(const char *inputs, const char *dump, char *table, size_t size) {
    lathe_check_result result;
    FILE *out = fmemopen(table, size, "w");
    cr_assert_not_null(out);
    const lathe_check_options o = {.engines = &engine,
                                   .ranks = 1,
                                   .variant = find_variant("1x8"),
                                   .seed = 9,
                                   .whole_step = !synthetic.unkind,
                                   .schedules = true,
                                   .inputs = inputs,
                                   .dump = dump,
                                   .out = out};
    cr_assert_eq(lathe_check(&o, &result, message, sizeof message), LATHE_OK, "%s", message);
    fclose(out);
    return result;
}

static char table[16384];

Test(check, a_sound_step_passes) {
    build();
    const lathe_check_result r = check(NULL, NULL, table, sizeof table);
    cr_assert_eq(r.failed, 0, "%s", table);
    cr_assert_eq(r.launches, 5);
    cr_assert(strstr(table, "whole step") && strstr(table, "graph"));
    cr_assert(!strstr(table, "FAILED"));
}

Test(check, unkind_weights_are_checked_by_launches_only) {
    synthetic.unkind = true;
    build();
    const lathe_check_result r = check(NULL, NULL, table, sizeof table);
    cr_assert_eq(r.failed, 0, "%s", table);
    cr_assert(!strstr(table, "whole step"));
}

Test(check, a_wrong_constant_is_seen) {
    edit("norm_1x8.cu", "kEps = 1e-05f", "kEps = 1e-01f");
    build();
    cr_assert_eq(check(NULL, NULL, table, sizeof table).failed, 1, "%s", table);
    cr_assert(strstr(table, "norm_1x8"));
    cr_assert(strstr(table, "FAILED"));
    cr_assert(strstr(table, "worst row") && !strstr(table, "elements wrong"), "%s", table);
}

Test(check, a_row_that_is_not_written_is_seen) {
    edit("norm_1x8.cu", "norm<Norm1x8>(s, gain, x);",
         "if (block_id() != 7) norm<Norm1x8>(s, gain, x);");
    build();
    cr_assert_geq(check(NULL, NULL, table, sizeof table).failed, 1);
    cr_assert(strstr(table, "nan"), "%s", table);
}

Test(check, a_changed_input_is_seen) {
    edit("norm_1x8.cu", "norm<Norm1x8>(s, gain, x);",
         "norm<Norm1x8>(s, gain, x); const_cast<bf16 *>(gain)[3].bits = 7;");
    build();
    cr_assert_geq(check(NULL, NULL, table, sizeof table).failed, 1);
    cr_assert(strstr(table, "gain of rank 0 changed though it is an input"), "%s", table);
}

/* The buffer is as large as variant 4x8 needs: nothing else would notice. */
Test(check, a_write_past_the_end_is_seen) {
    edit("norm_1x8.cu", "norm<Norm1x8>(s, gain, x);",
         "norm<Norm1x8>(s, gain, x); if (block_id() == 0 && thread_id() == 0) x[32 * 96 - 1].bits "
         "= 0;");
    build();
    cr_assert_eq(check(NULL, NULL, table, sizeof table).failed, 1, "%s", table);
    cr_assert(strstr(table, "x of rank 0 is written past its end"), "%s", table);
}

/* One bit of one element is within every tolerance, but not the same bits again. */
Test(check, bits_that_change_from_run_to_run_are_seen) {
    edit("norm_1x8.cu", "norm<Norm1x8>(s, gain, x);",
         "norm<Norm1x8>(s, gain, x); static u32 calls; "
         "if (block_id() == 0 && thread_id() == 0) x[0].bits ^= ++calls & 1;");
    build();
    const lathe_check_result r = check(NULL, NULL, table, sizeof table);
    cr_assert_geq(r.failed, 1, "%s", table);
    cr_assert(strstr(table, "other than launched one by one"), "%s", table);
}

static void write_h(int64_t count) {
    static uint16_t zeros[8 * 224];
    const lathe_step_shape shape = {1, {count}};
    cr_assert_eq(lathe_named_write(folder, "L00.h", LATHE_SCALAR_BF16, &shape, zeros, message,
                                   sizeof message),
                 LATHE_OK, "%s", message);
}

Test(check, a_value_from_a_file_replaces_the_step_s_own) {
    lathe_npy x;
    build();
    write_h(8 * 224);
    char dump[64];
    snprintf(dump, sizeof dump, "%s/dump", folder);
    cr_assert_eq(mkdir(dump, 0777), 0);
    const lathe_check_result r = check(folder, dump, table, sizeof table);
    cr_assert_eq(r.failed, 0, "%s", table);
    cr_assert(!strstr(table, "whole step"));
    cr_assert_eq(lathe_named_read(dump, "L00.x", &x, message, sizeof message), LATHE_OK);
    cr_assert_eq(x.count, 8 * 96);
    for (int64_t i = 0; i < x.count; ++i)
        cr_assert_eq(((const uint16_t *)x.data)[i] & 0x7fff, 0);
    lathe_npy_destroy(&x);
}

Test(check, a_file_of_another_size_is_refused) {
    lathe_check_result r;
    build();
    write_h(8 * 223);
    const lathe_check_options o = {
        .engines = &engine, .ranks = 1, .variant = find_variant("1x8"), .inputs = folder};
    cr_assert_eq(lathe_check(&o, &r, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "L00.h.npy: 1784 elements"), "%s", message);
}

Test(check, a_weight_other_than_the_hosts_is_named) {
    lathe_check_weights_result result = {0};
    char text[256] = "";
    FILE *out = tmpfile();
    build();
    cr_assert_eq(lathe_check_weights(engine, &weights, out, &result, message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(result.failed, 0);
    cr_assert_gt(result.tensors, 0);
    cr_assert_eq(result.elements, result.all);
    const lathe_step_table *t = weights.table;
    const lathe_step_buffer *b = &t->buffers[t->weights[t->weight_count - 1].buffer];
    const int layer = b->per_layer ? b->layers[b->layer_count - 1] : -1;
    unsigned char last;
    const size_t at = (size_t)b->fixed_bytes - 1;
    cr_assert_eq(lathe_engine_read(engine, b->name, layer, at, &last, 1), LATHE_OK);
    last ^= 1;
    cr_assert_eq(lathe_engine_write(engine, b->name, layer, at, &last, 1), LATHE_OK);
    memset(&result, 0, sizeof result);
    cr_assert_eq(lathe_check_weights(engine, &weights, out, &result, message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(result.failed, 1);
    rewind(out);
    cr_assert_not_null(fgets(text, sizeof text, out));
    cr_assert(strstr(text, "is not what the host generates"), "%s", text);
    fclose(out);
}
