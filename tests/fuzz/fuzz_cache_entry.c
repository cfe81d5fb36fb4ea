/* SPDX-License-Identifier: Apache-2.0
 * digests.txt of an entry of the cache. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cache_entry.h"

#define TEXT(text) text, sizeof text - 1

static const lathe_cache_request request = {"k", "kernel.cubin", TEXT("__global__ void k() {}\n"),
                                            TEXT("all that it follows from")};

static lathe_status make(void *context, const char *path, char **log,
                         lathe_message_buffer message) {
    const char *folder = context;
    (void)log;
    (void)message;
    fuzz_write(path + strlen(folder) + 1, "cubin", 5);
    return LATHE_OK;
}

/* An entry as the cache makes it. */
static const char *entry(void) {
    static bool made;
    char text[512] = "";
    const lathe_message_buffer message = {text, sizeof text};
    if (!made)
        fuzz_require(lathe_entry_build(fuzz_folder(), "k", &request, make,
                                       (void *)(uintptr_t)fuzz_folder(), message) == LATHE_OK,
                     "%s", text);
    made = true;
    return fuzz_path("k");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[512] = "";
    const lathe_message_buffer reason = {text, sizeof text};
    uint64_t bytes;
    (void)entry();
    fuzz_write("k/digests.txt", data, size);
    const lathe_entry_state state = lathe_entry_check(entry(), &request, reason);
    fuzz_taken = state == LATHE_ENTRY_WHOLE;
    fuzz_require(fuzz_taken || state == LATHE_ENTRY_DAMAGED, "state %d", (int)state);
    fuzz_require(fuzz_taken || text[0], "damaged without a reason");
    text[0] = '\0';
    fuzz_require(lathe_entry_intact(entry(), &bytes, reason) == LATHE_ENTRY_WHOLE || text[0],
                 "damaged without a reason");
    return 0;
}

char *fuzz_seed(size_t *size) {
    (void)entry();
    return fuzz_read(fuzz_path("k/digests.txt"), size);
}
