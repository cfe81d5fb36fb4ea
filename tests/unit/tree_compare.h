/* SPDX-License-Identifier: Apache-2.0
 * Two directories hold the same files with the same bytes; each that differs is named. */
#ifndef LATHE_TEST_TREE_COMPARE_H
#define LATHE_TEST_TREE_COMPARE_H

#include "codegen_case.h"

/* Below the directory that is walked; nftw hands nothing through. */
static const char *tree_root, *tree_other;
static size_t tree_files;

static inline int tree_visit(const char *path, const struct stat *info, int type,
                             struct FTW *walk) {
    (void)info;
    (void)walk;
    if (type != FTW_F)
        return 0;
    const char *name = path + strlen(tree_root) + 1;
    const char *other = lathe_arena_print(case_arena, "%s/%s", tree_other, name);
    tree_files++;
    if (access(other, F_OK) != 0)
        cr_expect(false, "%s is not in %s", name, tree_other);
    else
        cr_expect(strcmp(case_read(path), case_read(other)) == 0, "%s differs from %s", path,
                  other);
    return 0;
}

/* Number of files below `a`; every one must be below `b` with the same bytes, and no other. */
static inline size_t tree_compare(const char *a, const char *b) {
    tree_files = 0;
    tree_root = b;
    tree_other = a;
    cr_expect_eq(nftw(b, tree_visit, 16, FTW_PHYS), 0, "%s cannot be read", b);
    const size_t count = tree_files;
    tree_files = 0;
    tree_root = a;
    tree_other = b;
    cr_expect_eq(nftw(a, tree_visit, 16, FTW_PHYS), 0, "%s cannot be read", a);
    cr_expect_eq(tree_files, count);
    return count;
}

#endif
