/* SPDX-License-Identifier: Apache-2.0
 * `lathe gen`: reads the options and calls the generator. */
#include "commands.h"
#include <stdio.h>

const char lathe_cmd_gen_summary[] = "generate the kernels and step.json of a layout";

int lathe_cmd_gen(int argc, char **argv) {
    (void)argc;
    (void)argv;
    fputs("lathe gen: this build has no generator\n", stderr);
    return LATHE_EXIT_USAGE;
}
