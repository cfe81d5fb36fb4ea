/* SPDX-License-Identifier: Apache-2.0
 * What `lathe gen` reads: FUZZ_FILE is a layout, a provider's spec or a table of tactics, among the
 * others as the fixtures have them. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "generate.h"

static void copy_fixtures(void) {
    static bool copied;
    char command[1024];
    snprintf(command, sizeof command, "cp -r %s/layouts %s/templates %s", FUZZ_FIXTURES,
             FUZZ_FIXTURES, fuzz_folder());
    fuzz_require(copied || system(command) == 0, "%s", command);
    copied = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char layout[256], out[256];
    copy_fixtures();
    snprintf(layout, sizeof layout, "%s", fuzz_path("layouts/base.lua"));
    snprintf(out, sizeof out, "%s", fuzz_path("out"));
    const lathe_generate_options o = {.layout = layout,
                                      .root = fuzz_folder(),
                                      .out = out,
                                      .tactics = "measured",
                                      .tp = 1,
                                      .no_scan = true};
    lathe_generate_result result = {0};
    fuzz_write(FUZZ_FILE, data, size);
    fuzz_require(lathe_folder_remove(out) == 0, "%s cannot be removed", out);
    fuzz_taken = lathe_generate(&o, &result);
    fuzz_require((access(out, F_OK) == 0) == fuzz_taken, "refused, yet written: %s",
                 result.message);
    fuzz_require(fuzz_taken || result.message[0], "refused without a word");
    const bool table = strncmp(FUZZ_FILE, "layouts/tactics/", 16) == 0;
    fuzz_require(fuzz_taken || !table || strstr(result.message, FUZZ_FILE), "said: %s",
                 result.message);
    free(result.why);
    return 0;
}

/* Without the newline at its end, which may be missing. */
char *fuzz_seed(size_t *size) {
    char *text = fuzz_read(FUZZ_FIXTURES "/" FUZZ_FILE, size);
    while (*size > 0 && text[*size - 1] == '\n')
        --*size;
    return text;
}
