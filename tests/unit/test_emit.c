/* SPDX-License-Identifier: Apache-2.0
 * The generated directory: the same bytes from the same inputs, whole or not at all, readable by
 * the runtime. */
#include "codegen_case.h"

#include "step_table.h"

#include <dirent.h>
#include <jansson.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

TestSuite(emit, .init = case_begin, .fini = case_end, .timeout = 100);

/* Every file below a folder, "name\ntext", in sorted order. */
static void collect(lathe_text *out, const char *folder, const char *shown) {
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, alphasort);
    cr_assert_geq(count, 0);
    for (int i = 0; i < count; i++) {
        const char *path = lathe_arena_print(case_arena, "%s/%s", folder, entries[i]->d_name);
        const char *name = lathe_arena_print(case_arena, "%s/%s", shown, entries[i]->d_name);
        struct stat info;
        cr_assert_eq(stat(path, &info), 0);
        if (S_ISDIR(info.st_mode) && entries[i]->d_name[0] != '.')
            collect(out, path, name);
        else if (S_ISREG(info.st_mode))
            lathe_text_print(out, "%s\n%s", name, case_read(path));
        free(entries[i]);
    }
    free(entries);
}

static const char *everything(const char *folder) {
    lathe_text text = {.arena = case_arena};
    collect(&text, folder, "");
    return lathe_text_string(&text);
}

static size_t entries_of_folder(void) {
    struct dirent **entries;
    const int count = scandir(case_folder, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return count < 0 ? 0 : (size_t)count;
}

static bool generate_toy(lathe_generate_options options) {
    options.layout = options.layout ? options.layout : LATHE_SOURCE_DIR "/layouts/toy.lua";
    options.tp = 1;
    options.out = options.out ? options.out : case_path("out");
    free(case_result.why);
    return lathe_generate(&options, &case_result);
}

Test(emit, the_toy_passes_with_all_checks) {
    cr_assert(generate_toy((lathe_generate_options){.arch = "host"}), "%s", case_result.message);
    cr_assert(generate_toy((lathe_generate_options){.arch = "sm_90a"}), "%s", case_result.message);
    cr_assert_eq(case_result.kernels, 9);
}

Test(emit, the_same_inputs_give_the_same_bytes) {
    cr_assert(generate_toy((lathe_generate_options){.no_scan = true}));
    const char *first = everything(case_path("out"));
    cr_assert(
        generate_toy((lathe_generate_options){.no_scan = true, .out = case_path("deep/er/out")}));
    cr_assert_str_eq(first, everything(case_path("deep/er/out")));
}

Test(emit, the_same_tree_elsewhere_gives_the_same_bytes) {
    cr_assert(generate_toy((lathe_generate_options){.no_scan = true}));
    const char *first = everything(case_path("out"));
    cr_assert_eq(mkdir(case_path("layouts"), 0777), 0);
    case_write("layouts/toy.lua", case_read(LATHE_SOURCE_DIR "/layouts/toy.lua"));
    const char *copy =
        lathe_arena_print(case_arena, "cp -r %s/templates %s/", LATHE_SOURCE_DIR, case_folder);
    cr_assert_eq(system(copy), 0);
    cr_assert(generate_toy((lathe_generate_options){.no_scan = true,
                                                    .layout = case_path("layouts/toy.lua")}),
              "%s", case_result.message);
    cr_assert_str_eq(first, everything(case_path("out")));
}

Test(emit, no_path_of_the_machine_gets_in) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    const char *all = everything(case_path("out"));
    cr_assert_null(strstr(all, LATHE_SOURCE_DIR));
    cr_assert_null(strstr(all, case_folder));
    cr_assert(strstr(all, "case.lua:"));
}

Test(emit, the_runtime_reads_it) {
    lathe_step_table *table;
    char message[1024] = "";
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    cr_assert_eq(lathe_step_table_read(case_path("out"), &table, message, sizeof message), LATHE_OK,
                 "%s", message);
    cr_assert_str_eq(table->layout, "base");
    cr_assert_str_eq(table->hash, case_result.hash);
    cr_assert_eq(table->kernel_count, 15);
    cr_assert_eq(table->layer_count, 3);
    cr_assert_eq(table->max_rows, 8);
    cr_assert_eq(table->max_requests, 2);
    lathe_step_table_destroy(table);
}

static void check_sorted(const json_t *value) {
    const char *before = "";
    const char *key;
    json_t *item;
    size_t index;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, item) {
            cr_expect_lt(strcmp(before, key), 0, "%s stands before %s", before, key);
            before = key;
            check_sorted(item);
        }
    }
    json_array_foreach(value, index, item) check_sorted(item);
}

Test(emit, keys_are_sorted) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    json_t *step = json_load_file(case_path("out/step.json"), JSON_REJECT_DUPLICATES, NULL);
    cr_assert(step);
    check_sorted(step);
    json_decref(step);
}

static const char *hash_of(const char *layout, lathe_generate_options options) {
    cr_assert(case_generate(layout, options), "%s", case_result.message);
    return lathe_arena_copy(case_arena, case_result.hash, 16);
}

Test(emit, everything_that_went_in_is_in_the_hash) {
    const char *first = hash_of(case_base(), (lathe_generate_options){0});
    cr_assert_str_eq(hash_of(case_base(), (lathe_generate_options){0}), first);
    const char *comment = case_replace(case_base(), "-- A small", "-- Another small");
    cr_assert_str_neq(hash_of(comment, (lathe_generate_options){0}), first);
    cr_assert_str_neq(hash_of(case_base(), (lathe_generate_options){.arch = "sm_100a"}), first);
    cr_assert_str_neq(hash_of(case_base(), (lathe_generate_options){.tp = 2}), first);
    cr_assert_str_neq(hash_of(case_base(), (lathe_generate_options){.deployment = "other"}), first);
    cr_assert_str_neq(hash_of(case_base(), (lathe_generate_options){.tactics = "measured"}), first);
    const char *copy = lathe_arena_print(case_arena, "cp -r %s/. %s/root", FIXTURES, case_folder);
    cr_assert_eq(system(copy), 0);
    const lathe_generate_options moved = {.root = case_path("root")};
    cr_assert_str_eq(hash_of(case_base(), moved), first);
    case_write("root/templates/fix/common.cuh", "#include \"prims.cuh\"\n// changed\n");
    const char *changed = hash_of(case_base(), moved);
    cr_assert_str_neq(changed, first);
    case_write("root/templates/prims/host/types.cuh", "// changed\n");
    cr_assert_str_neq(hash_of(case_base(), moved), changed);
}

Test(emit, templates_are_copied_with_what_they_include_and_no_more) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    static const char *const there[] = {"fix/product.cuh", "fix/common.cuh", "prims/cuda/prims.cuh",
                                        "prims/cuda/types.cuh", "prims/host/types.cuh"};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        cr_expect_str_eq(
            case_read(lathe_arena_print(case_arena, "%s/templates/%s", FIXTURES, there[i])),
            case_read(lathe_arena_print(case_arena, "%s/out/templates/%s", case_folder, there[i])));
    cr_expect_neq(access(case_path("out/templates/fix/fat.cuh"), F_OK), 0);
    cr_expect_neq(access(case_path("out/templates/fix/product.lua"), F_OK), 0);
}

Test(emit, includes_must_be_templates) {
    const char *copy = lathe_arena_print(case_arena, "cp -r %s/. %s/root", FIXTURES, case_folder);
    cr_assert_eq(system(copy), 0);
    case_write("root/templates/fix/common.cuh", "// 1\n\n#include \"no/such.cuh\"\n\n");
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.root = case_path("root")}));
    case_expect_message((const char *const[]){"templates/fix/common.cuh:3: #include \"no/such.cuh\"",
                                              "allowed: a header of templates/", NULL});
    case_write("root/templates/fix/common.cuh", "#include \"../../../etc/passwd\"\n");
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.root = case_path("root")}));
    cr_assert_eq(remove(case_path("root/templates/fix/mix.cuh")), 0);
    case_write("root/templates/fix/common.cuh", "#include \"prims.cuh\"\n");
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.root = case_path("root")}));
    case_expect_message(
        (const char *const[]){"templates/fix/mix.lua:2: there is no templates/fix/mix.cuh", NULL});
}

Test(emit, a_generated_directory_is_replaced_whole) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    case_write("out/templates/stale.cuh", "stale");
    const size_t before = entries_of_folder();
    const lathe_generate_options o = {.layout = case_path("case.lua"),
                                      .root = FIXTURES,
                                      .tp = 1,
                                      .out = case_path("out//"),
                                      .no_scan = true};
    free(case_result.why);
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
    cr_assert_neq(access(case_path("out/templates/stale.cuh"), F_OK), 0);
    cr_assert_eq(entries_of_folder(), before);
}

static void refuse_target(const char *wanted) {
    const lathe_generate_options o = {.layout = case_path("case.lua"),
                                      .root = FIXTURES,
                                      .tp = 1,
                                      .out = case_path("out"),
                                      .no_scan = true};
    free(case_result.why);
    cr_assert_not(lathe_generate(&o, &case_result));
    cr_assert(strstr(case_result.message, wanted), "%s", case_result.message);
}

Test(emit, a_directory_of_others_is_left_alone) {
    case_write("case.lua", case_base());
    cr_assert_eq(mkdir(case_path("out"), 0777), 0);
    case_write("out/mine.txt", "mine");
    refuse_target("exists and was not generated");
    case_write("out/step.json", "{\"mine\": 1}");
    refuse_target("exists and was not generated");
    cr_assert_str_eq(case_read(case_path("out/mine.txt")), "mine");
}

Test(emit, files_of_others_in_a_generated_directory_are_left_alone) {
    static const char *const files[] = {"out/mine.txt", "out/mine.cu", "out/templates/mine.txt"};
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    for (size_t i = 0; i < 3; i++) {
        case_write(files[i], "mine");
        refuse_target(lathe_arena_print(case_arena, "%s: was not generated", files[i]));
        cr_assert_str_eq(case_read(case_path(files[i])), "mine");
        cr_assert_eq(remove(case_path(files[i])), 0);
    }
    cr_assert_eq(mkdir(case_path("out/mine"), 0777), 0);
    refuse_target("out/mine: was not generated");
}

Test(emit, a_file_is_not_replaced) {
    case_write("case.lua", case_base());
    case_write("out", "mine");
    refuse_target("exists and is no directory");
    cr_assert_str_eq(case_read(case_path("out")), "mine");
}

Test(emit, an_empty_directory_is_taken) {
    case_write("case.lua", case_base());
    cr_assert_eq(mkdir(case_path("out"), 0777), 0);
    const lathe_generate_options o = {.layout = case_path("case.lua"),
                                      .root = FIXTURES,
                                      .tp = 1,
                                      .out = case_path("out"),
                                      .no_scan = true};
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
}

Test(emit, a_failure_leaves_the_old_directory_and_nothing_beside_it) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    const char *old = everything(case_path("out"));
    const size_t before = entries_of_folder();
    case_write("case.lua", case_replace(case_base(), "shard = 0", "shard = 9"));
    refuse_target("field 'shard'");
    cr_assert_str_eq(old, everything(case_path("out")));
    cr_assert_eq(entries_of_folder(), before);
}

Test(emit, what_a_killed_generation_left_is_removed) {
    const char *names[] = {"out.lathe-killed", "out.lathe-alive0", "out.lathe", "other.lathe-x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_assert_eq(mkdir(case_path(names[i]), 0777), 0);
        case_write(lathe_arena_print(case_arena, "%s/step.json", names[i]), "{");
    }
    const int alive = open(case_path(names[1]), O_RDONLY | O_DIRECTORY);
    cr_assert(alive >= 0 && flock(alive, LOCK_EX) == 0);
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}), "%s", case_result.message);
    cr_assert_neq(access(case_path(names[0]), F_OK), 0);
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        cr_assert_eq(access(case_path(names[i]), F_OK), 0, "%s", names[i]);
    cr_assert_eq(entries_of_folder(), 7, "two dots, the layout, its directory and three of others");
    close(alive);
}

#ifdef LATHE_SCAN
Test(emit, a_failed_check_leaves_the_old_directory_and_nothing_beside_it) {
    /* The fixtures' templates are empty: no entry function is there to find. */
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    const char *old = everything(case_path("out"));
    const size_t before = entries_of_folder();
    const lathe_generate_options o = {
        .layout = case_path("case.lua"), .root = FIXTURES, .tp = 1, .out = case_path("out")};
    free(case_result.why);
    cr_assert_not(lathe_generate(&o, &case_result));
    cr_assert(strstr(case_result.message, "fix_product"), "%s", case_result.message);
    cr_assert_str_eq(old, everything(case_path("out")));
    cr_assert_eq(entries_of_folder(), before);
}
#endif

Test(emit, only_filters_the_kernels) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){.only = "*_1x1"}));
    cr_assert_eq(access(case_path("out/up_1x1.cu"), F_OK), 0);
    cr_assert_neq(access(case_path("out/up_2x4.cu"), F_OK), 0);
    cr_assert(strstr(case_read(case_path("out/step.json")), "up_2x4.cu"));
    char message[1024];
    lathe_step_table *table;
    cr_assert_eq(lathe_step_table_read(case_path("out"), &table, message, sizeof message),
                 LATHE_INVALID);
    cr_assert(strstr(message, "generated with --only *_1x1"), "%s", message);
    cr_assert_not(case_generate(case_base(), (lathe_generate_options){.only = "none*"}));
    case_expect_message((const char *const[]){"--only \"none*\": matches no kernel", NULL});
}

Test(emit, every_constant_names_its_origin) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){0}));
    const char *up = case_read(case_path("out/down_2x4.cu"));
    static const char *const lines[] = {
        "static constexpr int kRows = 8;      // case.lua:39, h[0]\n",
        "static constexpr int kN = 64;        // case.lua:50, down[0]\n",
        "static constexpr int kPartials = 1;  // case.lua:12, option partials\n",
        "static constexpr int kWarps = 4;     // templates/fix/product.lua:36, rule\n",
        "static constexpr int kThreads = 128; // templates/fix/product.lua:12, computed\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect(strstr(up, lines[i]), "no %s in %s", lines[i], up);
    const char *norm = case_read(case_path("out/norm_1x1.cu"));
    cr_expect(strstr(norm, "static constexpr float kEps = 1e-05f; // case.lua:22, eps of norm\n"));
    cr_expect(strstr(case_read(case_path("out/add_1x1.cu")),
                     "kHasAlpha = 1; // argument alpha is bound\n"));
    cr_expect(strstr(case_read(case_path("out/gate.cu")),
                     "kClamp = 0.5f; // templates/fix/gate.lua:5, default\n"));
}

/* clang-format must find nothing to change in any generated file. */
static void expect_formatted(void) {
    if (system("command -v clang-format >/dev/null 2>&1") != 0)
        cr_skip("clang-format is not here");
    const char *check = lathe_arena_print(
        case_arena, "clang-format --style=file:%s/.clang-format -n --Werror %s/out/*.cu",
        LATHE_SOURCE_DIR, case_folder);
    cr_expect_eq(system(check), 0);
}

Test(emit, output_is_formatted) {
    cr_assert(case_generate(case_base(), (lathe_generate_options){.tactics = "measured"}));
    expect_formatted();
}

Test(emit, output_with_long_names_is_formatted) {
    for (int length = 8; length <= 88; length += 16) {
        char word[128] = "";
        memset(word, 'a', (size_t)length);
        const char *quoted = lathe_arena_print(case_arena, "\"%s\"", word);
        const char *layout = case_replace(case_base(), "\"down\" }, options",
                                          lathe_arena_print(case_arena, "%s }, options", quoted));
        layout =
            case_replace(layout, "part \"down\"", lathe_arena_print(case_arena, "part %s", quoted));
        layout =
            case_replace(layout, "value \"h\"", lathe_arena_print(case_arena, "value %s", quoted));
        layout = case_replace(layout, "writes = { y = \"h\" }",
                              lathe_arena_print(case_arena, "writes = { y = %s }", quoted));
        layout = case_replace(layout, "x = \"h\"", lathe_arena_print(case_arena, "x = %s", quoted));
        cr_assert(case_generate(layout, (lathe_generate_options){0}), "%s", case_result.message);
        expect_formatted();
    }
}

/* A second model must need no line of C: none may name the first. */
static void expect_no_model(const char *folder, const char *suffix) {
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, alphasort);
    cr_assert_gt(count, 2);
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(entries[i]->d_name), end = strlen(suffix);
        if (entries[i]->d_name[0] != '.' && length > end &&
            strcmp(entries[i]->d_name + length - end, suffix) == 0)
            cr_expect_null(strcasestr(case_read(lathe_arena_print(case_arena, "%s/%s", folder,
                                                                  entries[i]->d_name)),
                                      "muse"),
                           "%s names a model", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

Test(emit, no_c_file_knows_a_model) {
    static const char *const suffixes[] = {".c", ".h"};
    for (int i = 0; i < 2; i++) {
        expect_no_model(LATHE_SOURCE_DIR "/codegen", suffixes[i]);
        expect_no_model(LATHE_SOURCE_DIR "/runtime", suffixes[i]);
        expect_no_model(LATHE_SOURCE_DIR "/tools", suffixes[i]);
    }
}

/* A file that cannot grow stands for a full disk: nothing is left beside the directory. */
Test(emit, a_full_disk_leaves_nothing) {
    const struct rlimit limit = {256, 256};
    struct dirent **entries;
    case_write("case.lua", case_base());
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const lathe_generate_options o = {.layout = case_path("case.lua"),
                                      .out = case_path("out"),
                                      .root = FIXTURES,
                                      .tp = 1,
                                      .no_scan = true};
    cr_assert_not(lathe_generate(&o, &case_result));
    case_expect_message((const char *const[]){"cannot be written", "File too large", NULL});
    const int count = scandir(case_folder, &entries, NULL, alphasort);
    cr_assert_eq(count, 3, "only ., .. and the layout: found %d", count);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}
