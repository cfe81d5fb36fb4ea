/* SPDX-License-Identifier: Apache-2.0
 * What the tests of codegen share: a folder of their own, a layout with a few words changed, one
 * generation. */
#ifndef LATHE_TEST_CODEGEN_CASE_H
#define LATHE_TEST_CODEGEN_CASE_H

#include "generate.h"
#include "text.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIXTURES LATHE_SOURCE_DIR "/tests/unit/fixtures"

static lathe_diag case_diag;
static lathe_arena *case_arena;
static char case_folder[] = "/tmp/lathe-test-XXXXXX";
static lathe_generate_result case_result;

static inline void case_begin(void) {
    case_arena = lathe_arena_create(&case_diag);
    cr_assert(case_arena && mkdtemp(case_folder));
}

static inline int case_remove(const char *path, const struct stat *info, int type,
                              struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline void case_end(void) {
    (void)nftw(case_folder, case_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(case_result.why);
    lathe_arena_destroy(case_arena);
}

static inline const char *case_read(const char *path) {
    lathe_text text = {.arena = case_arena};
    cr_assert(lathe_text_read(&text, path), "%s cannot be read", path);
    return lathe_text_string(&text);
}

static inline const char *case_path(const char *name) {
    return lathe_arena_print(case_arena, "%s/%s", case_folder, name);
}

static inline void case_write(const char *name, const char *text) {
    FILE *file = fopen(case_path(name), "wb");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* `text` with its first `from` replaced; a `from` that does not occur is a mistake of the test. */
static inline const char *case_replace(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    cr_assert(at, "\"%s\" does not occur", from);
    return lathe_arena_print(case_arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static inline const char *case_base(void) {
    return case_read(FIXTURES "/layouts/base.lua");
}

/* Generates from a layout's text. */
static inline bool case_generate(const char *layout, lathe_generate_options options) {
    case_write("case.lua", layout);
    options.layout = case_path("case.lua");
    options.out = options.out ? options.out : case_path("out");
    options.root = options.root ? options.root : FIXTURES;
    options.tp = options.tp ? options.tp : 1;
    options.no_scan = true;
    free(case_result.why);
    (void)nftw(case_path("out"), case_remove, 16, FTW_DEPTH | FTW_PHYS);
    return lathe_generate(&options, &case_result);
}

static inline void case_expect_message(const char *const *wanted) {
    for (; *wanted; wanted++)
        cr_expect(strstr(case_result.message, *wanted), "no \"%s\" in: %s", *wanted,
                  case_result.message);
    cr_expect_neq(access(case_path("out"), F_OK), 0, "a refused layout left a directory");
}

/* The base layout with one change must be refused with a message that holds all of `...`. */
#define REFUSED(from, to, ...)                                                                     \
    do {                                                                                           \
        cr_assert_not(                                                                             \
            case_generate(case_replace(case_base(), from, to), (lathe_generate_options){0}));      \
        case_expect_message((const char *const[]){__VA_ARGS__, NULL});                             \
    } while (0)

/* The base layout with one change must pass. */
#define ACCEPTED(from, to)                                                                         \
    cr_assert(case_generate(case_replace(case_base(), from, to), (lathe_generate_options){0}),     \
              "%s", case_result.message)

#endif
