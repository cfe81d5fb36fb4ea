/* SPDX-License-Identifier: Apache-2.0
 * `lathe checkpoint`: writes synthetic weights as a checkpoint that other programs can read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint_write.h"
#include "commands.h"
#include "generated.h"
#include "synthetic.h"

const char lathe_cmd_checkpoint_summary[] = "write synthetic weights as safetensors";

#define FILE_BYTES ((uint64_t)4 << 30)

static const char help[] = "usage: lathe checkpoint --synthetic SEED|calm:SEED|unkind:SEED "
                           "DIR|LAYOUT --out DIR [options]\n"
                           "\n"
                           "Writes every tensor that the step reads, whole, with an index.\n"
                           "\n"
                           "  --deployment NAME  of a layout\n";

typedef struct {
    const char *synthetic, *target, *out, *deployment;
} options;

static int refuse(const char *what) {
    fprintf(stderr, "lathe checkpoint: %s; see lathe checkpoint --help\n", what);
    return LATHE_EXIT_USAGE + 1;
}

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; ++i) {
        const char **to = NULL;
        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return LATHE_EXIT_OK + 1;
        }
        if (strcmp(argv[i], "--synthetic") == 0)
            to = &o->synthetic;
        else if (strcmp(argv[i], "--out") == 0)
            to = &o->out;
        else if (strcmp(argv[i], "--deployment") == 0)
            to = &o->deployment;
        else if (argv[i][0] == '-')
            return refuse("unknown option");
        if (to && i + 1 == argc)
            return refuse("an option lacks its value");
        if (to)
            *to = argv[++i];
        else
            o->target = argv[i];
    }
    return o->synthetic && o->target && o->out
               ? 0
               : refuse("--synthetic, a layout and --out are needed");
}

static bool parse_synthetic(const char *text, lathe_synthetic *s) {
    char calm[64];
    if (lathe_synthetic_parse(text, s))
        return true;
    snprintf(calm, sizeof calm, "calm:%.50s", text);
    return lathe_synthetic_parse(calm, s);
}

static int write_checkpoint(const options *o, lathe_synthetic *s, const char *directory) {
    char message[1024];
    struct stat st;
    lathe_step_table *table = NULL;
    lathe_status status = lathe_step_table_read(directory, &table, message, sizeof message);
    const lathe_weight_reader reader = lathe_synthetic_reader(s);
    if (status == LATHE_OK && mkdir(o->out, 0777) != 0 &&
        (stat(o->out, &st) != 0 || !S_ISDIR(st.st_mode))) {
        snprintf(message, sizeof message, "%s: the folder cannot be made", o->out);
        status = LATHE_IO;
    }
    if (status == LATHE_OK)
        status =
            lathe_checkpoint_write(table, &reader, o->out, FILE_BYTES, message, sizeof message);
    lathe_step_table_destroy(table);
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    fprintf(stderr, "lathe checkpoint: %s\n", message);
    return LATHE_EXIT_USAGE;
}

int lathe_cmd_checkpoint(int argc, char **argv) {
    options o = {NULL, NULL, NULL, NULL};
    lathe_synthetic s;
    lathe_generated generated;
    int status = parse(argc, argv, &o);
    if (status != 0)
        return status - 1;
    if (!parse_synthetic(o.synthetic, &s))
        return refuse("a synthetic kind is SEED, calm:SEED or unkind:SEED") - 1;
    status = lathe_generated_open(o.target, "1", "host", o.deployment, &generated);
    if (status == LATHE_EXIT_OK)
        status = write_checkpoint(&o, &s, generated.directory);
    lathe_generated_close(&generated);
    return status;
}
