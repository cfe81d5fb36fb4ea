/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "npy.h"

static char path[] = "test_npy_XXXXXX";
static char message[512];

static void make_file(void) {
    const int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
}

static void remove_file(void) {
    unlink(path);
}

TestSuite(npy, .init = make_file, .fini = remove_file);

static void put(const char *header, size_t length, size_t data_bytes) {
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    const unsigned char prefix[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
    fwrite(prefix, 1, sizeof prefix, f);
    fwrite(header, 1, length, f);
    for (size_t i = 0; i < data_bytes; ++i)
        fputc((int)i, f);
    fclose(f);
}

static void expect_refused(const char *header, size_t data_bytes, const char *words) {
    put(header, strlen(header), data_bytes);
    lathe_npy a;
    cr_assert_eq(lathe_npy_read(path, &a, message, sizeof message), LATHE_INVALID, "%s", header);
    cr_assert(strstr(message, words), "'%s' lacks '%s'", message, words);
    cr_assert(strstr(message, path));
    cr_assert_null(a.data);
}

Test(npy, every_type_and_rank_returns_as_written) {
    unsigned char data[8 * 24];
    for (size_t i = 0; i < sizeof data; ++i)
        data[i] = (unsigned char)(i * 37);
    for (int type = 0; type < LATHE_NPY_TYPES; ++type)
        for (int rank = 0; rank <= 4; ++rank) {
            lathe_npy a = {.type = (lathe_npy_type)type,
                           .rank = rank,
                           .shape = {4, 3, 2, 1},
                           .count = 1,
                           .data = data};
            for (int d = 0; d < rank; ++d)
                a.count *= a.shape[d];
            cr_assert_eq(lathe_npy_write(path, &a, message, sizeof message), LATHE_OK);
            lathe_npy b;
            cr_assert_eq(lathe_npy_read(path, &b, message, sizeof message), LATHE_OK, "%s",
                         message);
            cr_assert_eq(b.type, a.type);
            cr_assert_eq(b.rank, a.rank);
            cr_assert_eq(b.count, a.count);
            for (int d = 0; d < rank; ++d)
                cr_assert_eq(b.shape[d], a.shape[d]);
            cr_assert_eq(memcmp(b.data, data, (size_t)a.count * lathe_npy_item_bytes(a.type)), 0);
            lathe_npy_destroy(&b);
            cr_assert_eq(lathe_npy_read_header(path, &b, message, sizeof message), LATHE_OK);
            cr_assert(b.type == a.type && b.rank == a.rank && b.count == a.count && !b.data);
        }
}

Test(npy, a_full_disk_leaves_no_file) {
    float data[4] = {1, 2, 3, 4};
    const lathe_npy a = {.type = LATHE_NPY_F32, .rank = 1, .shape = {4}, .count = 4, .data = data};
    const struct rlimit small = {64, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const lathe_status status = lathe_npy_write(path, &a, message, sizeof message);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    cr_assert_eq(status, LATHE_IO);
    cr_assert(strstr(message, "File too large"), "%s", message);
    cr_assert_neq(access(path, F_OK), 0);
}

Test(npy, a_device_that_takes_nothing_stays) {
    float data[4] = {1, 2, 3, 4};
    const lathe_npy a = {.type = LATHE_NPY_F32, .rank = 1, .shape = {4}, .count = 4, .data = data};
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("/dev/full", path), 0);
    cr_assert_eq(lathe_npy_write(path, &a, message, sizeof message), LATHE_IO);
    cr_assert(strstr(message, "No space left on device"), "%s", message);
    cr_assert_eq(access(path, F_OK), 0);
}

Test(npy, an_empty_array_is_an_array) {
    lathe_npy a;
    put("{'shape': (0, 9223372036854775807), 'descr': '<f4', 'fortran_order': False}", 75, 0);
    cr_assert_eq(lathe_npy_read(path, &a, message, sizeof message), LATHE_OK, "%s", message);
    cr_assert_eq(a.count, 0);
    cr_assert_not_null(a.data);
    lathe_npy_destroy(&a);
}

Test(npy, what_is_no_header_is_refused) {
    expect_refused("", 0, "no dictionary");
    expect_refused("{'descr': '<f4'", 0, "no dictionary");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", 8, "follows");
    expect_refused("{'descr': '<f4', 'fortran_order': False, }", 8, "lacks");
    expect_refused("{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", 8, "twice");
    expect_refused("{'kind': 1}", 8, "unknown header key 'kind'");
    expect_refused("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", 8, "'>f4'");
    expect_refused("{'descr': 'O', 'fortran_order': False, 'shape': (2,)}", 8, "'O'");
    expect_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", 8, "fortran");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, "shape");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", 8, "shape");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
                   "at most 8");
}

Test(npy, a_shape_that_the_file_does_not_hold_is_refused) {
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 8, "12 bytes");
    expect_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 8, "4 bytes");
    expect_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 2)}", 8,
                   "overflows");
    expect_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8,
                   "shape");
}

Test(npy, a_truncated_or_foreign_file_is_refused) {
    lathe_npy a;
    FILE *f = fopen(path, "wb");
    fputs("\x93NUMPY", f);
    fclose(f);
    cr_assert_eq(lathe_npy_read(path, &a, message, sizeof message), LATHE_INVALID);
    put("{'descr'", 8, 0);
    cr_assert_eq(truncate(path, 12), 0);
    cr_assert_eq(lathe_npy_read(path, &a, message, sizeof message), LATHE_INVALID);
    cr_assert(strstr(message, "within the header"));
    cr_assert_eq(lathe_npy_read("no/such/file.npy", &a, message, sizeof message), LATHE_IO);
}
