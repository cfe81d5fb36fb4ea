/* SPDX-License-Identifier: Apache-2.0
 * The libclang checks as `lathe gen` runs them: every committed layout passes, and a template or a
 * spec changed in one place is refused with its place before anything is written. */
#include "codegen_case.h"
#include "layout.h"

#ifdef LATHE_SCAN

#include <dirent.h>

TestSuite(scan_gen, .init = case_begin, .fini = case_end, .timeout = 200);

static bool generate_for(const char *layout, const char *root, const lathe_deployment *d,
                         bool no_scan) {
    const lathe_generate_options options = {.layout = layout,
                                            .root = root,
                                            .tp = d->tp,
                                            .deployment = d->name,
                                            .out = case_path("out"),
                                            .no_scan = no_scan};
    free(case_result.why);
    return lathe_generate(&options, &case_result);
}

static bool generate(const char *layout, const char *root, bool no_scan) {
    return generate_for(layout, root, &(lathe_deployment){.tp = 1, .name = ""}, no_scan);
}

/* All deployments of a layout. */
static void check_layout(const char *folder, const char *name, const char *path) {
    lathe_lua *lua = lathe_lua_create(case_arena, (lathe_lua_folders){LATHE_SOURCE_DIR, folder});
    const lathe_node returned = lathe_lua_run(lua, name, path);
    const lathe_layout *layout = lathe_layout_read(lua, name, &returned);
    for (size_t i = 0; i < layout->deployment_count; i++) {
        const lathe_deployment *d = &layout->deployments[i];
        cr_expect(generate_for(path, LATHE_SOURCE_DIR, d, false), "%s, tp %lld '%s': %s", path,
                  (long long)d->tp, d->name, case_result.message);
        (void)nftw(case_path("out"), case_remove, 16, FTW_DEPTH | FTW_PHYS);
    }
    lathe_lua_destroy(lua);
}

static void check_folder(const char *folder) {
    DIR *dir = opendir(folder);
    cr_assert(dir, "%s", folder);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *path = lathe_arena_print(case_arena, "%s/%s", folder, entry->d_name);
        const size_t length = strlen(path);
        if (length < 4 || strcmp(path + length - 4, ".lua") != 0 ||
            !strstr(case_read(path), "return layout"))
            continue;
        check_layout(folder, entry->d_name, path);
        count++;
    }
    closedir(dir);
    cr_assert_gt(count, 0, "no layout in %s", folder);
}

Test(scan_gen, every_deployment_passes) {
    if (!LATHE_TRY(&case_diag))
        cr_assert_fail("%s", case_diag.message);
    check_folder(LATHE_SOURCE_DIR "/layouts");
}

typedef struct {
    const char *file, *from, *to;
    const char *place, *words;
} change;

/* The line of the first `text` in a file of the copy. */
static int line_of(const char *file, const char *text) {
    const char *content = case_read(case_path(file)), *at = strstr(content, text);
    cr_assert(at, "%s lacks %s", file, text);
    int line = 1;
    for (const char *c = content; c < at; c++)
        line += *c == '\n';
    return line;
}

static void copy_root(void) {
    const char *copy = lathe_arena_print(case_arena, "cp -r %s/templates %s/layouts %s/",
                                         LATHE_SOURCE_DIR, LATHE_SOURCE_DIR, case_folder);
    cr_assert_eq(system(copy), 0);
}

static void refuse(const change *c) {
    const char *sound = case_read(case_path(c->file));
    case_write(c->file, case_replace(sound, c->from, c->to));
    const char *layout = case_path("layouts/toy.lua");
    cr_expect_not(generate(layout, case_folder, false), "%s -> %s passes", c->from, c->to);
    const char *place =
        lathe_arena_print(case_arena, "%s:%d: ", c->file, line_of(c->file, c->place));
    cr_expect(strstr(case_result.message, place) && strstr(case_result.message, c->words),
              "wanted %s... %s, found: %s", place, c->words, case_result.message);
    cr_expect_neq(access(case_path("out"), F_OK), 0, "a refused generation left a directory");
    case_write(c->file, sound);
}

Test(scan_gen, changes_are_refused_with_their_place) {
    static const change list[] = {
        {"templates/boundary/norm.cuh", "const float *s, const bf16 *gain",
         "const bf16 *gain, const float *s", "void norm(", "parameter 1 of norm"},
        {"templates/boundary/norm.cuh", "C::kEps", "C::kEpsilon", "C::kEpsilon",
         "kEpsilon is read but not declared"},
        {"templates/boundary/norm.cuh", "    grid_wait();\n", "", "void norm(",
         "never calls grid_wait()"},
        {"templates/boundary/norm.cuh", "    grid_trigger();\n", "", "void norm(",
         "never calls grid_trigger()"},
        {"templates/boundary/norm.cuh", "    grid_wait();\n",
         "    if (start > 0)\n        grid_wait();\n", "grid_wait();", "under control flow"},
    };
    copy_root();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        refuse(&list[i]);
    cr_assert(generate(case_path("layouts/toy.lua"), case_folder, false), "%s",
              case_result.message);
}

Test(scan_gen, an_unread_constant_is_found_in_its_spec) {
    copy_root();
    const char *file = "templates/boundary/norm.cuh";
    case_write(file, case_replace(case_read(case_path(file)), "C::kEps", "1e-5f"));
    cr_assert_not(generate(case_path("layouts/toy.lua"), case_folder, false));
    const char *place =
        lathe_arena_print(case_arena, "templates/boundary/norm.lua:%d: constant kEps",
                          line_of("templates/boundary/norm.lua", "const \"kEps\""));
    cr_expect(strstr(case_result.message, place), "wanted %s, found: %s", place,
              case_result.message);
}

Test(scan_gen, no_scan_lets_it_pass) {
    copy_root();
    const char *file = "templates/boundary/norm.cuh";
    case_write(file, case_replace(case_read(case_path(file)), "    grid_wait();\n", ""));
    cr_assert(generate(case_path("layouts/toy.lua"), case_folder, true), "%s", case_result.message);
}

#endif
