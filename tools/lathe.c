/* SPDX-License-Identifier: Apache-2.0
 * The command line's dispatch: picks the subcommand, prints the usage. Knows no subcommand by name.
 */
#include "commands.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
#define LATHE_COMMAND(name) {#name, lathe_cmd_##name##_summary, lathe_cmd_##name},
#include "commands.def"
#undef LATHE_COMMAND
};

static void print_usage(FILE *out) {
    fputs("usage: lathe COMMAND ...   (lathe COMMAND --help says more)\n\n", out);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
    fputs("\nexit status: 0 success, 1 a check failed, 2 bad input or usage, 3 a device or a peer "
          "failed\n",
          out);
}

/* What a command printed may still be on its way: a full disk shows only now. */
static int finish(const char *what, int status) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "%s: standard output cannot be written\n", what);
    return status == LATHE_EXIT_OK ? LATHE_EXIT_USAGE : status;
}

static int run(const command *c, int argc, char **argv) {
    char name[64];
    snprintf(name, sizeof name, "lathe %s", c->name);
    return finish(name, c->run(argc, argv));
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* what a run has found is kept where it is cut short */
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        print_usage(stdout);
        return finish("lathe", LATHE_EXIT_OK);
    }
    for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run(&commands[i], argc - 1, argv + 1);
    if (argc >= 2)
        fprintf(stderr, "lathe: unknown command '%s'\n", argv[1]);
    print_usage(stderr);
    return LATHE_EXIT_USAGE;
}
