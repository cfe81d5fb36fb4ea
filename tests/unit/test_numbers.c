/* SPDX-License-Identifier: Apache-2.0
 * A bad number is found wherever it stands, and none where there is none: every pattern of e4m3 and
 * of bf16 in every place of a block and behind it, at odd addresses. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"
#include "weights.h"

#define BYTES (3 * 4096 + 40)

static unsigned char memory[BYTES + 1];

static int64_t find(lathe_scalar dtype, lathe_numbers numbers) {
    return lathe_numbers_find_bad(dtype, numbers, memory + 1,
                                  BYTES / (int64_t)lathe_scalar_bytes(dtype));
}

static void put(size_t place, uint32_t bits, size_t item) {
    memcpy(memory + 1 + place * item, &bits, item);
}

static void fill(uint32_t bits, size_t item) {
    for (size_t i = 0; i < BYTES / item; ++i)
        put(i, bits, item);
}

/* One pattern in a place among good ones. */
static void expect(lathe_scalar dtype, lathe_numbers numbers, size_t place, uint32_t bits,
                   uint32_t good_bits, bool good) {
    const size_t item = lathe_scalar_bytes(dtype);
    put(place, bits, item);
    const int64_t found = find(dtype, numbers);
    cr_assert_eq(found, (int64_t)(good ? BYTES / item : place), "%s %#x at %zu: %lld",
                 lathe_scalar_name(dtype), bits, place, (long long)found);
    put(place, good_bits, item);
}

static const size_t places[] = {0, 1, 7, 8, 511, 1023, 1024, 2047, 2048, 3073};

#define EACH(i) (size_t i = 0; i < sizeof places / sizeof places[0]; ++i)

Test(numbers, every_e4m3) {
    fill(0x38, 1);
    for (uint32_t bits = 0; bits < 256; ++bits)
        for
            EACH(i) {
                const bool finite = (bits & 0x7f) != 0x7f;
                expect(LATHE_SCALAR_E4M3, LATHE_NUMBERS_FINITE, 4 * places[i], bits, 0x38, finite);
                expect(LATHE_SCALAR_E4M3, LATHE_NUMBERS_UNSIGNED, 4 * places[i], bits, 0x38,
                       bits <= 0x7e);
            }
}

Test(numbers, every_bf16) {
    fill(0x3f80, 2);
    for (uint32_t bits = 0; bits < 65536; bits += bits % 128 == 1 ? 125 : 1)
        for
            EACH(i) {
                const bool finite = (bits & 0x7f80) != 0x7f80;
                expect(LATHE_SCALAR_BF16, LATHE_NUMBERS_FINITE, 2 * places[i], bits, 0x3f80,
                       finite);
            }
    expect(LATHE_SCALAR_BF16, LATHE_NUMBERS_POSITIVE, 5, 0x8000, 0x3f80, false);
}

Test(numbers, some_f32_and_f64) {
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff};
    static const uint32_t no_scales[] = {0, 0x80000000, 0xbf800000, 0x80000001, 0xff7fffff};
    fill(0x3f800000, 4);
    for
        EACH(i) {
            for (size_t k = 0; k < 4; ++k) {
                expect(LATHE_SCALAR_F32, LATHE_NUMBERS_FINITE, places[i], bad[k], 0x3f800000,
                       false);
                expect(LATHE_SCALAR_F32, LATHE_NUMBERS_POSITIVE, places[i], bad[k], 0x3f800000,
                       false);
            }
            for (size_t k = 0; k < 5; ++k) {
                expect(LATHE_SCALAR_F32, LATHE_NUMBERS_FINITE, places[i], no_scales[k], 0x3f800000,
                       true);
                expect(LATHE_SCALAR_F32, LATHE_NUMBERS_POSITIVE, places[i], no_scales[k],
                       0x3f800000, false);
            }
            expect(LATHE_SCALAR_F32, LATHE_NUMBERS_POSITIVE, places[i], 1, 0x3f800000, true);
            expect(LATHE_SCALAR_F32, LATHE_NUMBERS_POSITIVE, places[i], 0x7f7fffff, 0x3f800000,
                   true);
        }
    const double values[] = {1, -INFINITY, 2};
    cr_assert_eq(lathe_numbers_find_bad(LATHE_SCALAR_F64, LATHE_NUMBERS_FINITE, values, 3), 1);
    cr_assert_eq(lathe_numbers_find_bad(LATHE_SCALAR_I32, LATHE_NUMBERS_ANY, values, 3), 3);
}

Test(numbers, scales_are_known_by_what_the_layout_says_of_them) {
    lathe_step_source s = {.dtype = LATHE_SCALAR_E4M3, .init = "scales"};
    cr_assert_eq(lathe_numbers_of(&s), LATHE_NUMBERS_UNSIGNED, "a block's may be zero");
    s.dtype = LATHE_SCALAR_F32, s.init = "input_scale";
    cr_assert_eq(lathe_numbers_of(&s), LATHE_NUMBERS_POSITIVE);
    s.init = "global_scale";
    cr_assert_eq(lathe_numbers_of(&s), LATHE_NUMBERS_POSITIVE);
    s.init = "router";
    cr_assert_eq(lathe_numbers_of(&s), LATHE_NUMBERS_FINITE);
    s.init = NULL, s.dtype = LATHE_SCALAR_U8;
    cr_assert_eq(lathe_numbers_of(&s), LATHE_NUMBERS_ANY);
}

#define ROWS 1025
#define COLUMNS 1024

/* ROWS x COLUMNS of bf16, one of them infinite; the path. */
static const char *write_wide(size_t place) {
    static char path[] = "test_numbers_XXXXXX";
    static uint16_t elements[ROWS * COLUMNS];
    char header[200];
    const int length = snprintf(header, sizeof header,
                                "{\"w\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],"
                                "\"data_offsets\":[0,%zu]}}",
                                ROWS, COLUMNS, sizeof elements);
    FILE *f = fdopen(mkstemp(path), "wb");
    elements[place] = 0xff80;
    cr_assert_not_null(f);
    fwrite(&(const uint64_t){(uint64_t)length}, 8, 1, f);
    fputs(header, f);
    fwrite(elements, sizeof elements, 1, f);
    cr_assert_eq(fclose(f), 0);
    return path;
}

Test(numbers, a_wide_matrix_is_looked_at_where_it_is_read) {
    static uint16_t to[ROWS * COLUMNS];
    const size_t place = 700000;
    const char *path = write_wide(place);
    char message[512] = "";
    lathe_safetensors *c;
    cr_assert_eq(lathe_safetensors_open(path, &c, message, sizeof message), LATHE_OK);
    const lathe_step_source s = {
        .tensor = "w", .dtype = LATHE_SCALAR_BF16, .shape = {.count = 2, .dim = {ROWS, COLUMNS}}};
    const lathe_weight_reader r = lathe_weights_checkpoint(c);
    cr_assert_eq(r.read(r.context, &s, "w", 0, (int64_t)place, to, message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(r.read(r.context, &s, "w", (int64_t)place + 1, 1000, to, message, sizeof message),
                 LATHE_OK, "another rank's element is its own business");
    cr_assert_eq(r.read(r.context, &s, "w", 5, (int64_t)place, to, message, sizeof message),
                 LATHE_INVALID);
    cr_assert(strstr(message, "tensor 'w' is not finite at element 700000"), "%s", message);
    lathe_safetensors_close(c);
    unlink(path);
}
