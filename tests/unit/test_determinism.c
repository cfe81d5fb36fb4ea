/* SPDX-License-Identifier: Apache-2.0
 * What is generated depends on the sources alone: not on the working directory, not on how the
 * layout is named, not on where the sources stand. */
#include "layout.h"
#include "tree_compare.h"

TestSuite(determinism, .init = case_begin, .fini = case_end, .timeout = 110);

static void generate(const char *folder, const char *layout, const lathe_deployment *d,
                     const char *out) {
    cr_assert_eq(chdir(folder), 0);
    const lathe_generate_options o = {.layout = layout,
                                      .tp = d->tp,
                                      .deployment = d->name,
                                      .arch = "sm_90a",
                                      .tactics = "h200",
                                      .out = case_path(out),
                                      .no_scan = true};
    free(case_result.why);
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
}

/* From here, from elsewhere, and from a copy of the sources. */
static void generate_thrice(const char *name) {
    const char *path = lathe_arena_print(case_arena, LATHE_SOURCE_DIR "/layouts/%s", name);
    lathe_lua *lua = lathe_lua_create(
        case_arena, (lathe_lua_folders){LATHE_SOURCE_DIR, LATHE_SOURCE_DIR "/layouts"});
    const lathe_node returned = lathe_lua_run(lua, name, path);
    const lathe_layout *layout = lathe_layout_read(lua, name, &returned);
    for (size_t i = 0; i < layout->deployment_count; i++) {
        const lathe_deployment *d = &layout->deployments[i];
        generate(LATHE_SOURCE_DIR "/layouts", name, d, "here");
        generate("/", path, d, "elsewhere");
        generate(case_path("copy/templates"), lathe_arena_print(case_arena, "../layouts/%s", name),
                 d, "copied");
        cr_assert_gt(tree_compare(case_path("here"), case_path("elsewhere")), 10);
        cr_assert_gt(tree_compare(case_path("here"), case_path("copied")), 10);
    }
    lathe_lua_destroy(lua);
}

Test(determinism, the_same_sources_make_the_same_bytes) {
    if (!LATHE_TRY(&case_diag))
        cr_assert_fail("%s", case_diag.message);
    cr_assert_eq(mkdir(case_path("copy"), 0777), 0);
    const char *copy = lathe_arena_print(case_arena, "cp -r %s/templates %s/layouts %s/copy/",
                                         LATHE_SOURCE_DIR, LATHE_SOURCE_DIR, case_folder);
    cr_assert_eq(system(copy), 0);
    generate_thrice("toy.lua");
    generate_thrice("attention_block.lua");
    generate_thrice("muse_spark.lua");
}
