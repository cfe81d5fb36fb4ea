/* SPDX-License-Identifier: Apache-2.0
 * A checkpoint: FUZZ_FILE is its one file, or the index of its two. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

#define A "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}"
#define B "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":["
#define INDEX                                                                                      \
    "{\"metadata\":{\"total_size\":16},"                                                           \
    "\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}}"

/* The header's length in 8 bytes, the header, zeros; malloc'ed. */
static char *make_file(const char *header, size_t data_bytes, size_t *size) {
    const size_t length = strlen(header);
    char *bytes = calloc(1, 8 + length + data_bytes);
    fuzz_require(bytes && length < 256, "no memory");
    bytes[0] = (char)length;
    memcpy(bytes + 8, header, length);
    *size = 8 + length + data_bytes;
    return bytes;
}

static void write_file(const char *name, const char *header, size_t data_bytes) {
    size_t size;
    char *bytes = make_file(header, data_bytes, &size);
    fuzz_write(name, bytes, size);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char message[1024] = "";
    lathe_safetensors *c;
    write_file("a.safetensors", A "}", 12);
    write_file("b.safetensors", "{" B "0,4]}}", 4);
    fuzz_write(FUZZ_FILE, data, size);
    const lathe_status status = lathe_safetensors_open(fuzz_folder(), &c, message, sizeof message);
    fuzz_taken = status == LATHE_OK;
    fuzz_require(fuzz_taken == (c != NULL), "a checkpoint and a refusal, or neither");
    fuzz_require(fuzz_taken || strstr(message, fuzz_folder()), "said: %s", message);
    lathe_safetensors_close(c);
    return 0;
}

char *fuzz_seed(size_t *size) {
    if (strcmp(FUZZ_FILE, "model.safetensors") == 0)
        return make_file(A "," B "12,16]}}", 16, size);
    *size = strlen(INDEX);
    return strdup(INDEX);
}
