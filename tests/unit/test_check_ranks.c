/* SPDX-License-Identifier: Apache-2.0
 * The checker over two ranks: the attention block passes with its sum published or made by the
 * library, and faults that only several ranks can have are seen. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "generated.h"
#include "ranks.h"
#include "synthetic.h"
#include "weights.h"

static char message[4096];
static char table[65536];
static lathe_generated generated;
static lathe_synthetic synthetic = {false, 5};
static lathe_ranks ranks;

static void generate(const char *deployment) {
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/attention_block.lua", "2",
                                      "host", deployment, &generated),
                 LATHE_EXIT_OK);
}

static void tear_down(void) {
    lathe_ranks_destroy(&ranks);
    lathe_generated_close(&generated);
}

TestSuite(check_ranks, .fini = tear_down);

/* Replaces the one occurrence of `from` in a generated file or a template beside it. */
static void edit(const char *file, const char *from, const char *to) {
    char path[1024];
    static char text[65536];
    snprintf(path, sizeof path, "%s/%s", generated.directory, file);
    FILE *f = fopen(path, "r+");
    cr_assert_not_null(f, "%s", path);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    const char *at = strstr(text, from);
    cr_assert_not_null(at, "%s lacks %s", file, from);
    rewind(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    cr_assert_eq(ftruncate(fileno(f), ftell(f)), 0);
    fclose(f);
}

static lathe_check_result check(const char *variant) {
    lathe_weights weights[2];
    lathe_weight_source sources[2];
    lathe_check_result result;
    lathe_options o = LATHE_OPTIONS_INIT;
    o.directory = generated.directory;
    cr_assert_eq(lathe_ranks_create(&o, &ranks, message, sizeof message), LATHE_OK, "%s", message);
    const lathe_step_table *t = lathe_engine_table(ranks.engines[0]);
    for (int r = 0; r < 2; ++r) {
        weights[r] = (lathe_weights){t, r, lathe_synthetic_reader(&synthetic)};
        sources[r] = lathe_weights_source(&weights[r]);
    }
    cr_assert_eq(lathe_ranks_build(&ranks, sources, message, sizeof message), LATHE_OK, "%s",
                 message);
    FILE *out = fmemopen(table, sizeof table, "w");
    lathe_check_options c = {.engines = ranks.engines,
                             .ranks = 2,
                             .seed = 1,
                             .whole_step = true,
                             .schedules = true,
                             .out = out};
    while (c.variant < t->variant_count && strcmp(t->variants[c.variant].name, variant) != 0)
        ++c.variant;
    cr_assert_eq(lathe_check(&c, &result, message, sizeof message), LATHE_OK, "%s", message);
    fclose(out);
    return result;
}

Test(check_ranks, a_published_sum_passes) {
    generate("publish");
    const lathe_check_result r = check("2x4");
    cr_assert_eq(r.failed, 0, "%s", table);
    cr_assert_eq(r.alike, 3 + 2 + 3 + 3, "%d\n%s", r.alike, table);
    cr_assert(strstr(table, "padding rows") && strstr(table, "parts "), "%s", table);
}

Test(check_ranks, a_sum_of_the_library_passes) {
    generate("nccl");
    const lathe_check_result r = check("1x1");
    cr_assert_eq(r.failed, 0, "%s", table);
    cr_assert(strstr(table, "all_reduce"), "%s", table);
}

/* One bit, at one rank: within every tolerance. */
Test(check_ranks, ranks_that_got_different_bits_are_seen) {
    generate("publish");
    edit("templates/collective/lamport.cuh",
         "        peer_store16(lamport_slot(e, to, e.rank, epoch) + offset, packet);",
         "        packet.x ^= to == 1;\n"
         "        peer_store16(lamport_slot(e, to, e.rank, epoch) + offset, packet);");
    cr_assert_geq(check("1x1").failed, 2, "%s", table);
    cr_assert(strstr(table, "parts of rank 0 did not arrive everywhere"), "%s", table);
    cr_assert(strstr(table, "s_next of rank 1 differs in bits from rank 0's"), "%s", table);
}

Test(check_ranks, packets_that_are_left_are_seen) {
    generate("publish");
    edit("templates/collective/lamport.cuh",
         "            peer_store16(from + lamport_place(i, hole) * stride,\n"
         "                         u32x4{kEmpty, kEmpty, kEmpty, kEmpty});",
         "            ;");
    cr_assert_geq(check("1x1").failed, 1, "%s", table);
    cr_assert(strstr(table, "parts of rank 0 leaves packets in its mailbox"), "%s", table);
}

Test(check_ranks, a_row_that_depends_on_padding_is_seen) {
    generate("publish");
    edit("first_2x4.cu", "norm<First2x4>(s, gain, x);",
         "norm<First2x4>(s, gain, x); if (block_id() == 0 && thread_id() == 0) "
         "x[0].bits ^= float_bits(s[7 * 192 + 5]) & 7;");
    cr_assert_geq(check("2x4").failed, 1, "%s", table);
    cr_assert(strstr(table, "padding rows: x depends on what stands in them"), "%s", table);
}
