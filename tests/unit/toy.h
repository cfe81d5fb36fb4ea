/* SPDX-License-Identifier: Apache-2.0
 * A copy of the hand-written directory fixtures/toy in a fresh temporary folder, with the prims
 * beside its templates. */
#ifndef LATHE_TESTS_TOY_H
#define LATHE_TESTS_TOY_H

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

#define TOY_FIXTURE LATHE_SOURCE_DIR "/tests/unit/fixtures/toy"

typedef struct {
    char root[256];      /* removed by toy_remove */
    char directory[300]; /* the generated directory */
    char cache[300];     /* not made */
} toy;

static inline void toy_shell(const char *format, const char *a, const char *b) {
    char command[2048];
    snprintf(command, sizeof command, format, a, b);
    cr_assert_eq(system(command), 0, "%s", command);
}

static inline void toy_create(toy *t) {
    snprintf(t->root, sizeof t->root, "/tmp/lathe-test-XXXXXX");
    cr_assert_not_null(mkdtemp(t->root));
    snprintf(t->directory, sizeof t->directory, "%s/toy", t->root);
    snprintf(t->cache, sizeof t->cache, "%s/cache", t->root);
    toy_shell("cp -r %s %s", TOY_FIXTURE, t->directory);
    toy_shell("ln -s %s %s/templates/prims", LATHE_SOURCE_DIR "/templates/prims", t->directory);
}

static inline void toy_remove(const toy *t) {
    cr_assert_eq(lathe_folder_remove(t->root), 0);
}

static inline json_t *toy_json(void) {
    json_t *root = json_load_file(TOY_FIXTURE "/step.json", 0, NULL);
    cr_assert_not_null(root);
    return root;
}

/* Writes step.json of the copy. Takes the reference. */
static inline void toy_write_json(const toy *t, json_t *root) {
    char path[400];
    snprintf(path, sizeof path, "%s/step.json", t->directory);
    cr_assert_eq(json_dump_file(root, path, JSON_INDENT(1)), 0);
    json_decref(root);
}

/* The value at "kernels.2.args.0"; numbers index arrays. */
static inline json_t *toy_at(json_t *root, const char *path) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *save, *word = strtok_r(copy, ".", &save); word; word = strtok_r(NULL, ".", &save)) {
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(word))
                                   : json_object_get(root, word);
        cr_assert_not_null(root, "%s", path);
    }
    return root;
}

#endif
