/* SPDX-License-Identifier: Apache-2.0
 * What --inject takes and what it refuses. */
#include "inject.h"

#include <criterion/criterion.h>

static void reads(const char *text, lathe_inject_kind kind, int rank, int64_t step, uint64_t ns) {
    lathe_inject f;
    cr_assert(lathe_inject_parse(text, &f), "%s", text);
    cr_assert_eq(f.kind, kind, "%s", text);
    cr_assert_eq(f.rank, rank, "%s", text);
    cr_assert_eq(f.step, step, "%s", text);
    cr_assert_eq(f.delay_ns, ns, "%s", text);
}

Test(inject, reads_the_four_kinds) {
    reads("lost:1@20", LATHE_INJECT_LOST, 1, 20, 0);
    reads("late:15@0:250", LATHE_INJECT_LATE, 15, 0, 250000000u);
    reads("skew:3", LATHE_INJECT_SKEW, 3, 0, 0);
    reads("nan:0@7", LATHE_INJECT_NAN, 0, 7, 0);
}

Test(inject, refuses_all_else) {
    static const char *const wrong[] = {"",         "lost",      "lost:",           "lost:1",
                                        "lost:1@",  "lost:@1",   "lost:-1@0",       "lost:1@0:5",
                                        "late:1@2", "late:1@2:", "late:1@2:3x",     "skew:1@0",
                                        "skew:",    "nan:1",     "gone:1@0",        "lost:1 @0",
                                        "NAN:1@0",  "nan:1@ 0",  "nan:9999999999@0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        lathe_inject f;
        cr_assert_not(lathe_inject_parse(wrong[i], &f), "%s", wrong[i]);
        cr_assert_eq(f.kind, LATHE_INJECT_NOTHING);
    }
}
