/* SPDX-License-Identifier: Apache-2.0
 * The golden cases on the host device: launch by launch with the oracle's inputs, and as whole
 * steps where they are calm. A case of mixed query lengths is taken in parts, one per length. */
#include <criterion/criterion.h>
#include <string.h>

#include "golden_compare.h"
#include "golden_step.h"

static void check_launches(const char *name, const char *run, const char *deployment, int least) {
    golden_step f;
    if (!golden_step_open_run(&f, name, run, deployment))
        cr_skip_test("the case %s is not here (LATHE_CASES)", name);
    for (int i = 0; i < f.split_count; ++i) {
        char inputs[128];
        char dump[128];
        golden_step_folder(&f, "inputs", i, inputs, sizeof inputs);
        golden_step_folder(&f, "dump", i, dump, sizeof dump);
        golden_case_write_inputs(&f.c, &f.splits[i], inputs);
        golden_case_write_values(&f.c, &f.splits[i], inputs);
        const lathe_check_result result = golden_step_check(&f, inputs, dump, false);
        cr_expect_eq(result.failed, 0, "%d launches fail against their references", result.failed);
        cr_expect_geq(golden_compare_values(&f.c, &f.splits[i], dump), f.c.tp * least);
        golden_compare_rows(&f.c, &f.splits[i], dump);
        if (f.split_count == 1)
            golden_compare_metadata(&f.c, dump);
    }
    golden_step_close(&f);
}

static void check_step(const char *name, const char *run, const char *deployment) {
    golden_step f;
    char inputs[128];
    char dump[128];
    if (!golden_step_open_run(&f, name, run, deployment))
        cr_skip_test("the case %s is not here (LATHE_CASES)", name);
    cr_assert_eq(f.split_count, 1);
    golden_step_folder(&f, "inputs", 0, inputs, sizeof inputs);
    golden_step_folder(&f, "dump", 0, dump, sizeof dump);
    golden_case_write_inputs(&f.c, &f.splits[0], inputs);
    const lathe_check_result result = golden_step_check(&f, inputs, dump, true);
    cr_expect_eq(result.failed, 0, "%d failures", result.failed);
    if (f.c.tp == 1) /* over several ranks they are listed, and followed (line 3) */
        cr_expect_eq(result.flips, 0);
    golden_compare_step(&f.c, &f.splits[0], dump);
    golden_step_close(&f);
}

/* Values per case and rank: 16 or more of every layer and 4 after the last. */
Test(golden, mini_launch_by_launch) {
    check_launches("mini", "tp1", NULL, 4 * 16 + 4);
}

Test(golden, mini_whole_step) {
    check_step("mini", "tp1", NULL);
}

Test(golden, calm_launch_by_launch) {
    check_launches("calm_w4a4", "tp1", NULL, 5 * 16 + 4);
}

Test(golden, calm_whole_step) {
    check_step("calm_w4a4", "tp1", NULL);
}

/* Unkind weights: launches only (line 3). */
Test(golden, window_edges_launch_by_launch) {
    check_launches("window_edges", "tp1", NULL, 5 * 16 + 4);
}

/* Several ranks: experts sliced, or whole ones by rank. */
Test(golden, mini_of_two_ranks) {
    check_launches("mini", "tp2", NULL, 4 * 16 + 4);
}

Test(golden, mini_of_two_ranks_with_whole_experts) {
    check_launches("mini", "ep2", "ep", 4 * 16 + 4);
}

Test(golden, mini_whole_step_of_two_ranks) {
    check_step("mini", "tp2", NULL);
}

Test(golden, mini_whole_step_of_two_ranks_with_whole_experts) {
    check_step("mini", "ep2", "ep");
}

Test(golden, calm_of_four_ranks) {
    check_launches("calm_w4a4", "tp4", NULL, 5 * 16 + 4);
}

Test(golden, calm_of_four_ranks_with_whole_experts) {
    check_launches("calm_w4a4", "ep4", "ep", 5 * 16 + 4);
}

Test(golden, calm_whole_step_of_four_ranks) {
    check_step("calm_w4a4", "tp4", NULL);
}

Test(golden, calm_whole_step_of_four_ranks_with_whole_experts) {
    check_step("calm_w4a4", "ep4", "ep");
}

Test(golden, window_edges_of_two_ranks) {
    check_launches("window_edges", "ep2", "ep", 5 * 16 + 4);
}
