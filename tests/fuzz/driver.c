/* SPDX-License-Identifier: Apache-2.0
 * Calls a target without libFuzzer.
 * - fuzz_X [-runs=N]: with its seed, which it must take; with parts of it from the start, which it
 *   must refuse; with N copies (1000) in which up to three bytes are others, of which it must take
 *   some and refuse some.
 * - fuzz_X FILE...: with these files.
 * - fuzz_X -seed: prints the seed, to begin a corpus. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUTS 400 /* at most so many parts of the seed are tried */

static bool takes(const char *bytes, size_t size) {
    uint8_t *copy = malloc(size + 1); /* apiece, so that a sanitizer sees what lies beyond */
    fuzz_require(copy != NULL, "no memory");
    memcpy(copy, bytes, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return fuzz_taken;
}

static uint64_t draw(void) {
    static uint64_t random = 88172645463325252u;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
}

static bool takes_damaged(const char *seed, size_t size, int bytes) {
    static const char other[] = "0123456789-.,:;[](){}\"'=aeFRx# \n\\\x80\xff";
    char *copy = malloc(size);
    fuzz_require(copy != NULL, "no memory");
    memcpy(copy, seed, size);
    for (int i = 0; i < bytes; ++i) {
        const uint64_t random = draw();
        copy[random % size] = other[(random >> 32) % (sizeof other - 1)];
    }
    const bool taken = takes(copy, size);
    free(copy);
    return taken;
}

static void run_damage(int runs) {
    size_t size;
    int taken = 0;
    char *seed = fuzz_seed(&size);
    fuzz_require(takes(seed, size), "the seed is refused");
    for (size_t n = 0; n < size; n += size / CUTS + 1)
        fuzz_require(!takes(seed, n), "the seed is taken though cut to %zu of %zu bytes", n, size);
    for (int i = 0; i < runs; ++i)
        taken += takes_damaged(seed, size, 1 + i % 3);
    printf("%d of %d damaged inputs were taken\n", taken, runs);
    fuzz_require(taken > 0 && taken < runs, "all or none of them");
    free(seed);
}

int main(int argc, char **argv) {
    size_t size;
    int runs = 1000, files = 0;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "-seed") == 0) {
            char *seed = fuzz_seed(&size);
            fwrite(seed, 1, size, stdout);
            free(seed);
            return 0;
        }
        if (sscanf(argv[i], "-runs=%d", &runs) == 1)
            continue;
        char *bytes = fuzz_read(argv[i], &size);
        printf("%s: %s\n", argv[i], takes(bytes, size) ? "taken" : "refused");
        free(bytes);
        files++;
    }
    if (!files)
        run_damage(runs);
    return 0;
}
