/* SPDX-License-Identifier: Apache-2.0
 * Located messages: place first, control back at the LATHE_TRY. */
#include "diag.h"

#include <criterion/criterion.h>
#include <string.h>

static lathe_diag diag;

Test(diag, names_file_and_line) {
    if (LATHE_TRY(&diag)) {
        lathe_diag_fail(&diag, (lathe_where){"layouts/a.lua", 7}, "found %d", 3);
    }
    cr_assert_str_eq(diag.message, "layouts/a.lua:7: found 3");
}

Test(diag, names_the_file_alone_without_a_line) {
    if (LATHE_TRY(&diag)) {
        lathe_diag_fail(&diag, (lathe_where){"a.lua", 0}, "bad");
    }
    cr_assert_str_eq(diag.message, "a.lua: bad");
}

Test(diag, long_messages_are_cut_not_overrun) {
    static char word[3 * sizeof diag.message];
    memset(word, 'x', sizeof word - 1);
    if (LATHE_TRY(&diag)) {
        lathe_diag_fail(&diag, (lathe_where){word, 1}, "%s", word);
    }
    cr_assert_eq(strlen(diag.message), sizeof diag.message - 1);
}

Test(diag, raise_takes_a_message_as_it_is) {
    if (LATHE_TRY(&diag)) {
        lathe_diag_raise(&diag, "50%d");
    }
    cr_assert_str_eq(diag.message, "50%d");
}
