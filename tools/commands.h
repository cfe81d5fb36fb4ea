/* SPDX-License-Identifier: Apache-2.0
 * The subcommands of `lathe`. A file cmd_X.c defines
 *     const char lathe_cmd_X_summary[] = "one line for the usage";
 *     int lathe_cmd_X(int argc, char **argv);      argv[0] is "X"; returns the exit status
 * and is picked up by the build. */
#ifndef LATHE_COMMANDS_H
#define LATHE_COMMANDS_H

enum {
    LATHE_EXIT_OK = 0,
    LATHE_EXIT_CHECK = 1,  /* a check failed */
    LATHE_EXIT_USAGE = 2,  /* bad input or usage */
    LATHE_EXIT_DEVICE = 3, /* a device or a peer failed */
};

#define LATHE_COMMAND(name)                                                                        \
    extern const char lathe_cmd_##name##_summary[];                                                \
    int lathe_cmd_##name(int argc, char **argv);
#include "commands.def"
#undef LATHE_COMMAND

#endif
