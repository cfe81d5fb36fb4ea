/* SPDX-License-Identifier: Apache-2.0
 * step.json. */
#include "fuzz.h"

#include <jansson.h>
#include <string.h>

#include "step_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char message[1024] = "";
    lathe_step_table *t;
    const lathe_status status =
        lathe_step_table_parse((const char *)data, size, "step.json", &t, message, sizeof message);
    fuzz_taken = status == LATHE_OK;
    fuzz_require(fuzz_taken || status == LATHE_INVALID, "status %d", (int)status);
    fuzz_require(fuzz_taken == (t != NULL), "a table and a refusal, or neither");
    fuzz_require(fuzz_taken || strncmp(message, "step.json:", 10) == 0, "said: %s", message);
    lathe_step_table_destroy(t);
    return 0;
}

char *fuzz_seed(size_t *size) {
    json_t *root = json_load_file(FUZZ_FIXTURES "/toy/step.json", 0, NULL);
    char *text = json_dumps(root, JSON_COMPACT);
    fuzz_require(text != NULL, "the toy's step.json cannot be read");
    *size = strlen(text);
    json_decref(root);
    return text;
}
