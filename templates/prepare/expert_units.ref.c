/* SPDX-License-Identifier: Apache-2.0
 * Reference of prepare/expert_units: every byte of every unit. */
#include "moe/quantise.ref.h"
#include "moe/unit.ref.h"
#include "reference.h"

typedef struct {
    lathe_unit_shape shape;
    int64_t width, units; /* k of a row; units of an expert */
    const uint8_t *codes, *scales;
    double *out;
    bool fault;
} units_job;

/* The byte whose value is that of e4m3 `scale`; any byte serves for zero, whose codes are zero. */
static unsigned scale_byte(unsigned scale) {
    for (unsigned byte = 0; byte < 256; ++byte)
        if (lathe_unit_scale_value(byte) == lathe_e4m3_value(scale))
            return byte;
    return 17u << 3;
}

/* One block of 16 of row `row` of an expert. */
static void pack_block(units_job *job, int64_t expert, int64_t row, int64_t block) {
    const lathe_unit_shape *s = &job->shape;
    const int64_t all = expert * s->rows + row, per_unit = s->chunks * 4;
    const int64_t unit = expert * job->units + lathe_unit_of(s, row, block / per_unit);
    double *out = job->out + unit * lathe_unit_bytes(s);
    const int64_t k = block % per_unit * 16, lane = row % 8 * 4 + block % 4;
    const unsigned scale = job->scales[all * (job->width / 16) + block] & 127u;
    job->fault = job->fault || scale == 127 || job->scales[all * (job->width / 16) + block] > 128;
    out[s->chunks * 512 + lane * s->chunks * 2 + k / 64 * 2 + row % 16 / 8] =
        (double)(scale == 127 ? 255 : scale_byte(scale));
    double *at = out + k / 64 * 512 + lane * 16 + row % 16 / 8 * 8;
    for (int word = 0; word < 2; ++word) {
        unsigned bytes[4] = {0, 0, 0, 0};
        for (unsigned i = 0; i < 8 && scale != 0; ++i) {
            const int64_t index = all * job->width + block * 16 + word * 8 + i;
            const unsigned code = job->codes[index / 2] >> (index % 2 * 4) & 15u;
            for (unsigned bit = 0; bit < 4; ++bit)
                bytes[lathe_unit_bit(i, bit) / 8] |= (code >> bit & 1u)
                                                     << (lathe_unit_bit(i, bit) % 8);
        }
        for (int i = 0; i < 4; ++i)
            at[word * 4 + i] = (double)bytes[i];
    }
}

void lathe_ref_prepare_expert_units(lathe_ref *r);
void lathe_ref_prepare_expert_units(lathe_ref *r) {
    const int64_t chunks = lathe_ref_int(r, "kUnitBytes") / 576;
    for (int rank = 0; rank < lathe_ref_ranks(r); ++rank) {
        units_job job = {.shape = {.chunks = chunks,
                                   .steps = lathe_ref_int(r, "kBlocks") / (chunks * 4),
                                   .rows = lathe_ref_int(r, "kRows"),
                                   .paired = (int)lathe_ref_int(r, "kPaired")},
                         .width = lathe_ref_int(r, "kBlocks") * 16,
                         .units = lathe_ref_int(r, "kUnits"),
                         .codes = lathe_ref_data(r, rank, "codes"),
                         .scales = lathe_ref_data(r, rank, "scales"),
                         .out = lathe_ref_out(r, rank, "units")};
        for (int64_t e = 0; e < lathe_ref_int(r, "kExperts"); ++e)
            for (int64_t row = 0; row < job.shape.rows; ++row)
                for (int64_t block = 0; block < job.width / 16; ++block)
                    pack_block(&job, e, row, block);
        const int32_t *faults = lathe_ref_data(r, rank, "faults");
        if (job.fault)
            lathe_ref_out(r, rank, "faults")[0] = (double)(faults[0] | 4);
    }
}
