/* SPDX-License-Identifier: Apache-2.0
 * Packed experts: a block scale that units cannot hold ends the build in words. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>

#include "generated.h"
#include "ranks.h"
#include "synthetic.h"
#include "weights.h"

#define TINY LATHE_SOURCE_DIR "/layouts/muse_spark_tiny.lua"

typedef struct {
    lathe_weight_source inner;
    const lathe_step_table *table;
    unsigned char scale;
} spoiled;

/* The synthetic weights, with one scale replaced. */
static lathe_status fill(void *context, int weight, int layer, void *host, size_t bytes,
                         char *message, size_t size) {
    const spoiled *s = context;
    const lathe_status status =
        s->inner.fill(s->inner.context, weight, layer, host, bytes, message, size);
    if (strcmp(s->table->buffers[s->table->weights[weight].buffer].name, "expert.w2.scales") == 0)
        ((unsigned char *)host)[bytes / 2] = s->scale;
    return status;
}

static lathe_status build_with(unsigned char scale, char *message, size_t size) {
    lathe_synthetic synthetic = {false, 3};
    lathe_generated generated;
    lathe_ranks ranks;
    lathe_options o = LATHE_OPTIONS_INIT;
    cr_assert_eq(lathe_generated_open("gen", TINY, "2", "host", "packed", &generated), 0);
    o.directory = generated.directory;
    cr_assert_eq(lathe_ranks_create(&o, &ranks, message, size), LATHE_OK, "%s", message);
    const lathe_step_table *t = lathe_engine_table(ranks.engines[0]);
    lathe_weights weights[2];
    spoiled s[2];
    lathe_weight_source sources[2];
    for (int rank = 0; rank < 2; ++rank) {
        weights[rank] = (lathe_weights){t, rank, lathe_synthetic_reader(&synthetic)};
        s[rank] = (spoiled){lathe_weights_source(&weights[rank]), t, scale};
        sources[rank] =
            (lathe_weight_source){.size = sizeof *sources, .fill = fill, .context = &s[rank]};
    }
    const lathe_status status = lathe_ranks_build(&ranks, sources, message, size);
    lathe_ranks_destroy(&ranks);
    lathe_generated_close(&generated);
    return status;
}

TestSuite(expert_units, .init = cr_redirect_stdout);

Test(expert_units, refused_scales) {
    static const unsigned char refused[] = {0x81, 0x7f};
    char message[4096] = "";
    for (size_t i = 0; i < sizeof refused; ++i) {
        cr_assert_eq(build_with(refused[i], message, sizeof message), LATHE_INVALID);
        cr_assert(strstr(message, "block scale that is negative or not a number"), "%s", message);
    }
}

Test(expert_units, smallest_scales) {
    char message[4096] = "";
    cr_assert_eq(build_with(0x01, message, sizeof message), LATHE_OK, "%s", message);
}
