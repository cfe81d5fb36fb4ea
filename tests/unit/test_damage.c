/* SPDX-License-Identifier: Apache-2.0
 * What a layout, a spec or a tactic table says after damage is read or refused with a message that
 * names a file: no crash, no hang, nothing left behind. The sanitizers watch. */
#include "codegen_case.h"
#include "damage.h"

static int taken, refused;

static void begin(void) {
    case_begin();
    (void)mkdir(case_path("templates"), 0777);
    (void)mkdir(case_path("layouts"), 0777);
    (void)mkdir(case_path("layouts/tactics"), 0777);
    cr_assert_eq(symlink(FIXTURES "/templates/fix", case_path("templates/fix")), 0);
    cr_assert_eq(symlink(FIXTURES "/templates/prims", case_path("templates/prims")), 0);
}

TestSuite(damage, .init = begin, .fini = case_end, .timeout = 100);

/* Generates from the base layout as it lies in the case's folder, all else from there too. */
static void generate(const char *tactics, const char *named) {
    const lathe_generate_options o = {.layout = case_path("case.lua"),
                                      .root = case_folder,
                                      .out = case_path("out"),
                                      .tactics = tactics,
                                      .tp = 1,
                                      .no_scan = true};
    (void)nftw(case_path("out"), case_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(case_result.why);
    const bool good = lathe_generate(&o, &case_result);
    taken += good;
    refused += !good;
    cr_assert(good || strstr(case_result.message, named), "no %s in: %s", named,
              case_result.message);
    cr_assert_eq(access(case_path("out"), F_OK) == 0, good, "%s", case_result.message);
}

static void write_bytes(const char *name, const char *text, size_t length) {
    FILE *file = fopen(case_path(name), "wb");
    cr_assert(file && fwrite(text, 1, length, file) == length && fclose(file) == 0);
}

static void visit_layout(char *text, size_t length) {
    write_bytes("case.lua", text, length);
    generate(NULL, "");
    cr_assert_gt(strlen(case_result.message) + (size_t)taken, 0);
}

Test(damage, layouts) {
    const char *text = case_base();
    write_bytes("case.lua", text, strlen(text));
    generate(NULL, "");
    cr_assert_eq(taken, 1, "%s", case_result.message);
    damage_cut(text, strlen(text), 7, visit_layout);
    cr_assert_eq(taken, 1, "a layout that is cut short is none");
    damage_bytes(text, strlen(text), 400, visit_layout);
    cr_assert(taken > 1 && refused > 400, "%d taken, %d refused", taken, refused);
}

static void visit_spec(char *text, size_t length) {
    write_bytes("templates/mix/product.lua", text, length);
    generate(NULL, "");
}

/* A copy of the specs in which one is damaged. */
Test(damage, specs) {
    const char *text = case_read(FIXTURES "/templates/fix/product.lua");
    const char *layout = case_base();
    (void)mkdir(case_path("templates/mix"), 0777);
    for (const char *at; (at = strstr(layout, "use \"fix/product\""));)
        layout = lathe_arena_print(case_arena, "%.*suse \"mix/product\"%s", (int)(at - layout),
                                   layout, at + strlen("use \"fix/product\""));
    case_write("case.lua", layout);
    text = case_replace(text, "\"fix/product\"", "\"mix/product\"");
    case_write("templates/mix/product.cuh", case_read(FIXTURES "/templates/fix/product.cuh"));
    write_bytes("templates/mix/product.lua", text, strlen(text));
    generate(NULL, "");
    cr_assert_eq(taken, 1, "%s", case_result.message);
    damage_cut(text, strlen(text) - 1, 5, visit_spec);
    cr_assert_eq(taken, 1, "a spec that is cut short is none");
    damage_bytes(text, strlen(text), 400, visit_spec);
    cr_assert(taken > 1 && refused > 400, "%d taken, %d refused", taken, refused);
}

static void visit_table(char *text, size_t length) {
    write_bytes("layouts/tactics/measured.lua", text, length);
    generate("measured", "layouts/tactics/measured.lua");
}

Test(damage, tactic_tables) {
    const char *text = case_read(FIXTURES "/layouts/tactics/measured.lua");
    case_write("case.lua", case_base());
    damage_cut(text, strlen(text) - 1, 3, visit_table);
    cr_assert_eq(taken, 0, "a table that is cut short is none");
    damage_bytes(text, strlen(text), 400, visit_table);
    cr_assert(taken > 0 && refused > 400, "%d taken, %d refused", taken, refused);
}
