/* SPDX-License-Identifier: Apache-2.0
 * `lathe checkpoint`: writes synthetic weights as a checkpoint that other programs can read. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_write.h"
#include "command_line.h"
#include "commands.h"
#include "generated.h"
#include "synthetic.h"

const char lathe_cmd_checkpoint_summary[] = "write synthetic weights as safetensors";

#define FILE_BYTES ((uint64_t)4 << 30)

static const char help[] = "usage: lathe checkpoint DIR|LAYOUT --synthetic KIND --out DIR "
                           "[--deployment NAME]\n"
                           "\n"
                           "Writes every tensor that the step reads, whole, with an index.\n"
                           "\n"
                           "  --synthetic KIND   SEED (calm), calm:SEED or unkind:SEED\n"
                           "  --out DIR          where to write: a new folder or an empty one\n"
                           "  --deployment NAME  of a layout\n";

typedef struct {
    const char *target, *out, *deployment;
    lathe_synthetic synthetic;
} checkpoint_options;

static bool take_synthetic(const char *text, void *to) {
    char calm[64];
    snprintf(calm, sizeof calm, "calm:%.50s", text);
    return lathe_synthetic_parse(text, to) || lathe_synthetic_parse(calm, to);
}

/* Returns 0 to go on, else the exit status plus one. */
static int parse(int argc, char **argv, checkpoint_options *o) {
    const lathe_option options[] = {
        {.name = "--synthetic",
         .take = take_synthetic,
         .to = &o->synthetic,
         .allowed = "SEED, calm:SEED, unkind:SEED",
         .required = true},
        {.name = "--out", .text = &o->out, .required = true},
        {.name = "--deployment", .text = &o->deployment, .may_be_empty = true},
        {0}};
    const lathe_command_line line = {.command = "checkpoint",
                                     .help = help,
                                     .options = options,
                                     .target = &o->target,
                                     .target_is = "a generated directory or a layout"};
    return lathe_command_line_parse(&line, argc, argv);
}

static bool is_empty(const char *folder) {
    DIR *d = opendir(folder);
    bool empty = d != NULL;
    for (const struct dirent *e; empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (d)
        closedir(d);
    return empty;
}

/* A folder of its own: what is there is somebody's, and files of two checkpoints are none. */
static lathe_status make_folder(const char *folder, bool *made, char *message, size_t size) {
    struct stat st;
    *made = mkdir(folder, 0777) == 0;
    const int error = errno;
    if (*made)
        return LATHE_OK;
    if (error != EEXIST || stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) {
        snprintf(message, size, "%s: the folder cannot be made: %s", folder, strerror(error));
        return LATHE_IO;
    }
    if (is_empty(folder))
        return LATHE_OK;
    snprintf(message, size, "--out %s: found files there, allowed: a new folder or an empty one",
             folder);
    return LATHE_INVALID;
}

static int write_checkpoint(checkpoint_options *o, const char *directory) {
    char message[1024];
    bool made = false;
    lathe_step_table *table = NULL;
    lathe_status status = lathe_step_table_read(directory, &table, message, sizeof message);
    const lathe_weight_reader reader = lathe_synthetic_reader(&o->synthetic);
    if (status == LATHE_OK)
        status = make_folder(o->out, &made, message, sizeof message);
    if (status == LATHE_OK)
        status =
            lathe_checkpoint_write(table, &reader, o->out, FILE_BYTES, message, sizeof message);
    lathe_step_table_destroy(table);
    if (status == LATHE_OK)
        return LATHE_EXIT_OK;
    if (made)
        (void)rmdir(o->out);
    fprintf(stderr, "lathe checkpoint: %s\n", message);
    return LATHE_EXIT_USAGE;
}

int lathe_cmd_checkpoint(int argc, char **argv) {
    checkpoint_options o = {0};
    lathe_generated generated;
    int status = parse(argc, argv, &o);
    if (status != 0)
        return status - 1;
    status = lathe_generated_open("checkpoint", o.target, "1", "host", o.deployment, &generated);
    if (status == LATHE_EXIT_OK)
        status = write_checkpoint(&o, generated.directory);
    lathe_generated_close(&generated);
    return status;
}
