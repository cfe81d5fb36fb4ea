/* SPDX-License-Identifier: Apache-2.0
 * Growing text: appending, JSON strings, decimals, whole files. */
#include "text.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static lathe_diag diag;
static lathe_text text;

static void begin(void) {
    text = (lathe_text){.arena = lathe_arena_create(&diag)};
}

static void end(void) {
    lathe_arena_destroy(text.arena);
}

TestSuite(text, .init = begin, .fini = end);

Test(text, empty_text_is_a_string) {
    cr_assert_str_eq(lathe_text_string(&text), "");
}

Test(text, grows_over_many_appends) {
    for (int i = 0; i < 10000; i++)
        lathe_text_print(&text, "%d,", i % 10);
    cr_assert_eq(text.size, 20000);
    cr_assert_eq(strlen(lathe_text_string(&text)), 20000);
    cr_assert_eq(memcmp(text.data + 19998, "9,", 2), 0);
}

Test(text, keeps_zero_bytes) {
    lathe_text_append(&text, "a\0b", 3);
    cr_assert_eq(text.size, 3);
    cr_assert_eq(memcmp(text.data, "a\0b\0", 4), 0);
}

Test(text, json_escapes_quotes_backslashes_and_controls) {
    lathe_text_json(&text, "a\"b\\c\n\x01");
    cr_assert_str_eq(lathe_text_string(&text), "\"a\\\"b\\\\c\\u000a\\u0001\"");
}

Test(text, reals_read_back_exactly_and_look_like_reals) {
    const double values[] = {1e-5,    1e-8,    0.1,    1.0 / 3,
                             2.0,     -0.0,    500000, 0.6841258107984375,
                             DBL_MAX, DBL_MIN, 5e-324, 1e22};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *decimal = lathe_text_real(text.arena, values[i]);
        cr_assert_eq(strtod(decimal, NULL), values[i], "%s", decimal);
        cr_assert(strpbrk(decimal, ".e"), "%s", decimal);
    }
    cr_assert_str_eq(lathe_text_real(text.arena, 1e-5), "1e-05");
    cr_assert_str_eq(lathe_text_real(text.arena, 2), "2.0");
    cr_assert_str_eq(lathe_text_real(text.arena, -(double)NAN), "nan");
}

Test(text, missing_file_sets_errno) {
    cr_assert_not(lathe_text_read(&text, LATHE_SOURCE_DIR "/no/such/file"));
    cr_assert_eq(errno, ENOENT);
}

Test(text, a_folder_is_no_file) {
    cr_assert_not(lathe_text_read(&text, LATHE_SOURCE_DIR));
}

Test(text, reads_a_file_whole) {
    cr_assert(lathe_text_read(&text, LATHE_SOURCE_DIR "/.clang-format"));
    cr_assert(strstr(lathe_text_string(&text), "BasedOnStyle: LLVM"));
}
