/* SPDX-License-Identifier: Apache-2.0
 * A .npy file. */
#include "fuzz.h"

#include <string.h>

#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char message[512] = "";
    lathe_npy a;
    fuzz_write("a.npy", data, size);
    const lathe_status status = lathe_npy_read(fuzz_path("a.npy"), &a, message, sizeof message);
    fuzz_taken = status == LATHE_OK;
    fuzz_require(fuzz_taken || status == LATHE_INVALID, "status %d", (int)status);
    fuzz_require(fuzz_taken || !a.data, "data of a refused file");
    fuzz_require(fuzz_taken || strstr(message, fuzz_path("a.npy")), "said: %s", message);
    lathe_npy_destroy(&a);
    return 0;
}

char *fuzz_seed(size_t *size) {
    char message[512] = "", data[24];
    const lathe_npy a = {
        .type = LATHE_NPY_F32, .rank = 2, .shape = {2, 3}, .count = 6, .data = data};
    memset(data, 1, sizeof data);
    fuzz_require(lathe_npy_write(fuzz_path("a.npy"), &a, message, sizeof message) == LATHE_OK, "%s",
                 message);
    return fuzz_read(fuzz_path("a.npy"), size);
}
