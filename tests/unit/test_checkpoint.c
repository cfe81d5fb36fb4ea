/* SPDX-License-Identifier: Apache-2.0
 * A checkpoint that was written from synthetic weights gives the same weights when it is read. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_check.h"
#include "checkpoint_write.h"
#include "commands.h"
#include "generated.h"
#include "synthetic.h"

static char message[1024];
static char folder[] = "test_checkpoint_XXXXXX";
static lathe_generated generated;
static lathe_step_table *table;

static void set_up(void) {
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(lathe_generated_open("gen", LATHE_SOURCE_DIR "/layouts/toy.lua", "1", "host", NULL,
                                      &generated),
                 LATHE_EXIT_OK);
    cr_assert_eq(lathe_step_table_read(generated.directory, &table, message, sizeof message),
                 LATHE_OK, "%s", message);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void tear_down(void) {
    lathe_step_table_destroy(table);
    lathe_generated_close(&generated);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(checkpoint, .init = set_up, .fini = tear_down);

static void expect_equal(const lathe_weights *a, const lathe_weights *b, int weight, int layer) {
    const size_t bytes = (size_t)table->buffers[table->weights[weight].buffer].fixed_bytes;
    unsigned char *x = malloc(bytes);
    unsigned char *y = malloc(bytes);
    cr_assert_eq(lathe_weights_fill(a, weight, layer, x, bytes, message, sizeof message), LATHE_OK,
                 "%s", message);
    cr_assert_eq(lathe_weights_fill(b, weight, layer, y, bytes, message, sizeof message), LATHE_OK,
                 "%s", message);
    cr_assert_eq(memcmp(x, y, bytes), 0);
    free(x);
    free(y);
}

static int entries(void) {
    int count = 0;
    DIR *d = opendir(folder);
    cr_assert_not_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* A file that cannot grow stands for a full disk: nothing of the checkpoint is left. */
Test(checkpoint, a_full_disk_leaves_nothing) {
    lathe_synthetic s = {false, 4};
    const lathe_weight_reader reader = lathe_synthetic_reader(&s);
    const struct rlimit limit = {20000, 20000};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(lathe_checkpoint_write(table, &reader, folder, 1 << 30, message, sizeof message),
                 LATHE_IO);
    cr_assert(strstr(message, "File too large"), "%s", message);
    cr_assert_eq(entries(), 2, "only . and ..");
}

/* Small files, so that there are several. */
Test(checkpoint, written_and_read_weights_are_the_same) {
    lathe_synthetic s = {false, 4};
    const lathe_weight_reader reader = lathe_synthetic_reader(&s);
    lathe_safetensors *c;
    cr_assert_eq(lathe_checkpoint_write(table, &reader, folder, 50000, message, sizeof message),
                 LATHE_OK, "%s", message);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK, "%s",
                 message);
    cr_assert_eq(lathe_safetensors_count(c), 5);
    cr_assert_str_neq(lathe_safetensors_at(c, 0)->file, lathe_safetensors_at(c, 4)->file);
    cr_assert_eq(lathe_checkpoint_check(table, c, message, sizeof message), LATHE_OK, "%s",
                 message);
    const lathe_weights made = {table, 0, reader};
    const lathe_weights read = {table, 0, lathe_weights_checkpoint(c)};
    for (int w = 0; w < table->weight_count; ++w) {
        const lathe_step_buffer *b = &table->buffers[table->weights[w].buffer];
        for (int i = 0; i < (b->per_layer ? b->layer_count : 1); ++i)
            expect_equal(&made, &read, w, b->per_layer ? b->layers[i] : -1);
    }
    lathe_safetensors_close(c);
}

static int run_command(const char *synthetic, const char *layout, const char *out) {
    char *argv[] = {(char *)(uintptr_t) "checkpoint",
                    (char *)(uintptr_t) "--synthetic",
                    (char *)(uintptr_t)synthetic,
                    (char *)(uintptr_t)layout,
                    (char *)(uintptr_t) "--out",
                    (char *)(uintptr_t)out,
                    NULL};
    return lathe_cmd_checkpoint(out ? 6 : 4, argv);
}

#define REFUSED(words, out)                                                                        \
    do {                                                                                           \
        char said[600] = "";                                                                       \
        FILE *kept = tmpfile();                                                                    \
        const int old = dup(STDERR_FILENO);                                                        \
        cr_assert(kept &&dup2(fileno(kept), STDERR_FILENO) >= 0);                                  \
        const int status = run_command("3", generated.directory, out);                             \
        dup2(old, STDERR_FILENO);                                                                  \
        rewind(kept);                                                                              \
        said[fread(said, 1, sizeof said - 1, kept)] = 0;                                           \
        cr_assert_eq(status, LATHE_EXIT_USAGE);                                                    \
        cr_assert(strstr(said, words), "%s", said);                                                \
    } while (0)

Test(checkpoint, the_command_writes_one_or_says_why_not) {
    lathe_safetensors *c;
    cr_assert_eq(run_command("3", generated.directory, folder), LATHE_EXIT_OK);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK, "%s",
                 message);
    lathe_safetensors_close(c);
    char beside[64];
    snprintf(beside, sizeof beside, "%s/new", folder);
    const struct rlimit limit = {20000, 20000};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(run_command("3", generated.directory, beside), LATHE_EXIT_USAGE);
    cr_assert_neq(access(beside, F_OK), 0, "a folder that holds nothing is left");
    snprintf(beside, sizeof beside, "%s/none/new", folder);
    REFUSED("none/new: the folder cannot be made: No such file or directory", beside);
    snprintf(beside, sizeof beside, "%s/config", folder);
    fclose(fopen(beside, "w"));
    REFUSED("config: the folder cannot be made: File exists", beside);
    REFUSED("found files there, allowed: a new folder or an empty one", folder);
    cr_assert_eq(lathe_safetensors_open(folder, &c, message, sizeof message), LATHE_OK,
                 "what was there is gone: %s", message);
    lathe_safetensors_close(c);
    cr_assert_eq(run_command("mild:3", generated.directory, folder), LATHE_EXIT_USAGE);
    cr_assert_eq(run_command("3", "no/such/folder", folder), LATHE_EXIT_USAGE);
    cr_assert_eq(run_command("3", generated.directory, NULL), LATHE_EXIT_USAGE);
}
