/* SPDX-License-Identifier: Apache-2.0
 * One rank of two alone, its mailboxes led back to itself, on the host device: every exchange of
 * the step ends by data, in all three slots and over several steps. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "files.h"
#include "lathe.h"
#include "step.h"
#include "synthetic.h"
#include "weights.h"

static char root[64], directory[128];

static void generate(const char *deployment) {
    const char *const words[] = {"gen",       LATHE_SOURCE_DIR "/layouts/attention_block.lua",
                                 "--tp",      "2",
                                 "--arch",    "host",
                                 "--no-scan", "--deployment",
                                 deployment,  "--out",
                                 directory,   NULL};
    char *argv[16];
    int argc = 0;
    for (; words[argc]; ++argc)
        argv[argc] = (char *)(uintptr_t)words[argc];
    cr_assert_eq(lathe_cmd_gen(argc, argv), LATHE_EXIT_OK);
}

static void set_up(void) {
    strcpy(root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    snprintf(directory, sizeof directory, "%s/step", root);
    cr_redirect_stdout();
}

static void tear_down(void) {
    cr_assert_eq(lathe_folder_remove(root), 0);
}

TestSuite(loopback, .init = set_up, .fini = tear_down, .timeout = 240);

static lathe_engine *create(int rank) {
    char message[1024];
    lathe_engine *e;
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = directory;
    o.rank = rank;
    o.loopback = true;
    o.timeout_ns = 1000000;
    cr_assert_eq(lathe_create(&o, &e, message, sizeof message), LATHE_OK, "%s", message);
    return e;
}

static void run_steps(const char *deployment, int rank) {
    generate(deployment);
    lathe_engine *e = create(rank);
    cr_assert_null(lathe_unsupported(e), "%s", lathe_unsupported(e));
    lathe_synthetic synthetic = {false, 1};
    lathe_weights weights = {lathe_engine_table(e), rank, lathe_synthetic_reader(&synthetic)};
    const lathe_weight_source source = lathe_weights_source(&weights);
    cr_assert_eq(lathe_build(e, &source), LATHE_OK, "%s", lathe_message(e));
    const lathe_batch batch = {sizeof batch, 1, 1, 1, 1, 16};
    for (int step = 0; step < 4; ++step) {
        lathe_step_plan plan;
        cr_assert_eq(lathe_plan(e, &batch, &plan), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(lathe_run(e, &plan), LATHE_OK, "%s", lathe_message(e));
        cr_assert_eq(lathe_finish(e), LATHE_OK, "step %d: %s", step, lathe_message(e));
    }
    uint32_t epoch = 0;
    cr_assert_eq(lathe_engine_read_epoch(e, 0, &epoch), LATHE_OK);
    cr_expect_eq(epoch, 8); /* two exchanges a step */
    lathe_destroy(e);
}

Test(loopback, a_boundary_receives_what_it_pushed) {
    run_steps("", 0);
}

Test(loopback, a_boundary_receives_what_a_product_published) {
    run_steps("publish", 1);
}

Test(loopback, a_library_is_refused) {
    generate("nccl");
    lathe_engine *e = create(0);
    const char *reason = lathe_unsupported(e);
    cr_assert_not_null(reason);
    cr_expect(strstr(reason, "loop-back: the deployment exchanges by a library"), "%s", reason);
    lathe_destroy(e);
}
