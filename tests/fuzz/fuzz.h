/* SPDX-License-Identifier: Apache-2.0
 * A target reads bytes as one of the program's files, which it takes or refuses with a message that
 * says what is wrong; whatever else happens ends it. It is called by driver.c, with a valid file
 * and seeded damage of it, or by libFuzzer (-DLATHE_FUZZ=ON). */
#ifndef LATHE_TESTS_FUZZ_H
#define LATHE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The target. Always 0; whether the bytes were taken stands in fuzz_taken. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern bool fuzz_taken;

/* Bytes that are taken, though none of their proper prefixes is. The caller frees them. */
char *fuzz_seed(size_t *size);

/* ---- fuzz.c ---- */

/* Says what is wrong and ends the program unless `holds`. */
void fuzz_require(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A folder of this process, which goes at its end; "FOLDER/NAME" stays valid until the next call.
 */
const char *fuzz_folder(void);
const char *fuzz_path(const char *name);
void fuzz_write(const char *name, const void *data, size_t size);

/* The whole file; the caller frees it. */
char *fuzz_read(const char *path, size_t *size);

#endif
