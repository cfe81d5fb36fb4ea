/* SPDX-License-Identifier: Apache-2.0
 * Over the committed deployments: every kernel that streams weights has at least three tactics to
 * choose from. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "generate.h"
#include "step_table.h"
#include "tune_choices.h"

#define LEAST 3
#define STREAMED ((int64_t)1 << 20) /* bytes of a layer's weight */

static bool is_weight(const lathe_step_buffer *b) {
    return (b->lifetime == LATHE_LIFETIME_WEIGHT || b->lifetime == LATHE_LIFETIME_PREPARED) &&
           b->fixed_bytes >= STREAMED;
}

/* Whether a launch of `ops` reads a large weight through each of kernel `k`'s launches. An
 * embedding is looked up, a table of angles too: what is read whole counts, by the kernel's own
 * bytes. */
static bool streams(const lathe_step_table *t, const lathe_step_ops *ops, int k) {
    for (int i = 0; i < ops->count; ++i)
        for (int a = 0; ops->ops[i].kernel == k && a < t->kernels[k].arg_count; ++a) {
            const int b = ops->ops[i].bindings[a].buffer;
            if (b >= 0 && is_weight(&t->buffers[b]) && t->kernels[k].bytes >= STREAMED)
                return true;
        }
    return false;
}

static bool streams_weights(const lathe_step_table *t, int k) {
    bool found = false;
    for (int v = 0; v < t->variant_count; ++v) {
        found = found || streams(t, &t->variants[v].prologue, k) ||
                streams(t, &t->variants[v].epilogue, k);
        for (int kind = 0; kind < t->kind_count; ++kind)
            found = found || streams(t, &t->variants[v].kinds[kind], k);
    }
    return found;
}

static int check_table(const lathe_step_table *t, const lathe_tune_kernel *kernels, int count,
                       const char *deployment) {
    int checked = 0;
    for (int k = 0; k < t->kernel_count; ++k) {
        if (!streams_weights(t, k))
            continue;
        int choices = 0;
        for (int i = 0; i < count; ++i)
            if (strcmp(kernels[i].name, t->kernels[k].name) == 0)
                choices = kernels[i].count;
        cr_expect_geq(choices, LEAST, "%s: %s has %d tactics", deployment, t->kernels[k].name,
                      choices);
        ++checked;
    }
    return checked;
}

/* A line of generated/list.txt. */
static void check_deployment(const char *root, const char *layout, const char *tp,
                             const char *deployment, const char *arch, const char *tactics) {
    char path[512], out[128], message[512];
    static lathe_generate_result r;
    snprintf(path, sizeof path, "%s/layouts/%s.lua", LATHE_SOURCE_DIR, layout);
    snprintf(out, sizeof out, "%s/step", root);
    const lathe_generate_options o = {.layout = path,
                                      .tp = atoi(tp),
                                      .deployment = strcmp(deployment, "-") ? deployment : NULL,
                                      .arch = arch,
                                      .tactics = strcmp(tactics, "-") ? tactics : NULL,
                                      .choices = LEAST,
                                      .out = out,
                                      .no_scan = true};
    cr_assert(lathe_generate(&o, &r), "%s", r.message);
    lathe_pool *pool = lathe_pool_create();
    lathe_tune_kernel *kernels;
    const int count = lathe_tune_choices_read(r.choices, pool, &kernels);
    lathe_step_table *t;
    cr_assert_eq(lathe_step_table_read(out, &t, message, sizeof message), LATHE_OK, "%s", message);
    cr_expect_geq(check_table(t, kernels, count, out), 10);
    lathe_step_table_destroy(t);
    lathe_pool_destroy(pool);
    free(r.choices);
    free(r.why);
}

Test(tune_every, kernel_that_streams_weights_has_three_tactics) {
    char root[] = "/tmp/lathe-test-XXXXXX", *text, *save = NULL;
    size_t bytes;
    int deployments = 0;
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(lathe_file_read(LATHE_SOURCE_DIR "/generated/list.txt", 1 << 16, &text, &bytes),
                 0);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char layout[64], tp[8], deployment[32], arch[16], tactics[32];
        if (*line == '#' ||
            sscanf(line, "%63s %7s %31s %15s %31s", layout, tp, deployment, arch, tactics) != 5 ||
            strcmp(arch, "host") == 0)
            continue;
        check_deployment(root, layout, tp, deployment, arch, tactics);
        ++deployments;
    }
    cr_expect_geq(deployments, 4);
    free(text);
    cr_assert_eq(lathe_folder_remove(root), 0);
}
