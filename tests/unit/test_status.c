/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include "lathe.h"

Test(status, every_status_has_its_own_name) {
    for (int i = 0; i <= LATHE_DISAGREE; ++i)
        for (int j = 0; j < i; ++j)
            cr_assert_str_neq(lathe_status_name((lathe_status)i),
                              lathe_status_name((lathe_status)j));
    cr_assert_str_eq(lathe_status_name((lathe_status)99), "unknown status");
}
