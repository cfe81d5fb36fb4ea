/* SPDX-License-Identifier: Apache-2.0
 * The committed directories are what the sources make, byte for byte; after a change
 * tools/regenerate.sh writes them anew. */
#include "tree_compare.h"

#include <dirent.h>

#define FOLDER LATHE_SOURCE_DIR "/generated"

TestSuite(generated, .init = case_begin, .fini = case_end, .timeout = 200);

/* One line of list.txt. */
typedef struct {
    char layout[64], deployment[64], arch[32], tactics[32];
    long long tp;
    const char *directory;
} entry;

static const char *given(const char *word) {
    return strcmp(word, "-") == 0 ? NULL : word;
}

static size_t read_list(entry *entries, size_t most) {
    size_t count = 0;
    for (const char *line = case_read(FOLDER "/list.txt"); *line; line += *line == '\n') {
        entry *e = &entries[count];
        if (*line != '#' && *line != '\n') {
            cr_assert_lt(count, most);
            cr_assert_eq(sscanf(line, "%63s %lld %63s %31s %31s", e->layout, &e->tp, e->deployment,
                                e->arch, e->tactics),
                         5, "list.txt: %.60s", line);
            e->directory = lathe_arena_print(case_arena, "%s-tp%lld%s%s-%s", e->layout, e->tp,
                                             given(e->deployment) ? "-" : "",
                                             given(e->deployment) ? e->deployment : "", e->arch);
            count++;
        }
        line += strcspn(line, "\n");
    }
    return count;
}

static void compare(const entry *e) {
    const char *committed = lathe_arena_print(case_arena, FOLDER "/%s", e->directory);
    const lathe_generate_options o = {
        .layout = lathe_arena_print(case_arena, LATHE_SOURCE_DIR "/layouts/%s.lua", e->layout),
        .tp = e->tp,
        .deployment = given(e->deployment),
        .arch = e->arch,
        .tactics = given(e->tactics),
        .out = case_path("out")};
    free(case_result.why);
    cr_assert(lathe_generate(&o, &case_result), "%s", case_result.message);
    cr_expect_gt(tree_compare(committed, case_path("out")), 10);
}

Test(generated, is_what_the_sources_make) {
    entry entries[32];
    const size_t count = read_list(entries, sizeof entries / sizeof *entries);
    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++)
        compare(&entries[i]);
}

Test(generated, nothing_else_stands_there) {
    entry entries[32];
    const size_t count = read_list(entries, sizeof entries / sizeof *entries);
    DIR *folder = opendir(FOLDER);
    cr_assert(folder);
    for (struct dirent *d; (d = readdir(folder));) {
        bool listed = *d->d_name == '.' || strcmp(d->d_name, "README.md") == 0 ||
                      strcmp(d->d_name, "list.txt") == 0;
        for (size_t i = 0; i < count; i++)
            listed = listed || strcmp(d->d_name, entries[i].directory) == 0;
        cr_expect(listed, "generated/%s is not in list.txt; tools/regenerate.sh removes it",
                  d->d_name);
    }
    closedir(folder);
}
