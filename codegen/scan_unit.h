/* SPDX-License-Identifier: Apache-2.0
 * One source as the rules of the scan see it: tokens of each file and the declarations at namespace
 * level.
 *
 * scan_unit.c is the only namer of libclang. Everything here lives in the unit's pool and goes with
 * it. Running out of memory makes the unit `failed`; what it holds then is incomplete but safe to
 * read. */
#ifndef LATHE_SCAN_UNIT_H
#define LATHE_SCAN_UNIT_H

#include "scan.h"

typedef enum { LATHE_TOKEN_NAME, LATHE_TOKEN_MARK, LATHE_TOKEN_LITERAL } lathe_token_kind;

typedef struct {
    const char *text;
    lathe_token_kind kind; /* keywords are names */
    int line;
    unsigned offset; /* bytes from the start of the file */
} lathe_token;

/* A file's tokens without its comments. */
typedef struct {
    const char *file; /* as messages name it */
    const lathe_token *tokens;
    size_t count;
} lathe_token_list;

typedef struct {
    const char *name;
    const char *element; /* spelling of what it points to, without const; of the type where it is no
                            pointer */
    bool pointer, readonly;
    int line;
} lathe_parameter;

typedef struct {
    const char *name;
    bool function;
    const lathe_token_list *list; /* its file */
    size_t first, end;            /* its tokens in there */
    int line;
    const lathe_parameter *parameters;
    size_t parameter_count;
} lathe_declaration;

typedef struct {
    const char *file;
    int line;
    const char *message;
} lathe_finding;

typedef struct lathe_pool_block lathe_pool_block;

typedef struct {
    lathe_pool_block *blocks;
    bool failed; /* memory ran out */
    bool broken; /* does not parse */
    lathe_token_list **lists;
    size_t list_count;
    lathe_declaration *declarations;
    size_t declaration_count;
    lathe_finding *findings;
    size_t finding_count;
} lathe_scan_unit;

/* A file that need not exist on disk. */
typedef struct {
    const char *path, *text;
} lathe_scan_memory;

/* What is handed to libclang. */
typedef struct {
    const char *path;  /* of the file to parse */
    const char *shown; /* as messages name it */
    const char
        *root; /* include path, with root/prims/host; files below it, prims/ aside, are kept */
    const char *root_shown;
    const lathe_scan_memory *memory;
    size_t memory_count;
} lathe_scan_source;

/* Parses and fills a zeroed unit; errors of the language become findings. */
void lathe_scan_unit_parse(lathe_scan_unit *u, const lathe_scan_source *s);
void lathe_scan_unit_destroy(lathe_scan_unit *u);

/* Memory and text of the unit. Never NULL for text; an empty string where memory ran out. */
void *lathe_scan_alloc(lathe_scan_unit *u, size_t bytes);
const char *lathe_scan_copy(lathe_scan_unit *u, const char *text);
const char *lathe_scan_format(lathe_scan_unit *u, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Room for one more element after `count`: the array, perhaps moved, or NULL where memory ran out.
 */
void *lathe_scan_grow(lathe_scan_unit *u, void *array, size_t count, size_t size);

void lathe_scan_find(lathe_scan_unit *u, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Token texts are compared often enough to have a name for it. */
bool lathe_token_is(const lathe_token *t, const char *text);
/* Index after the bracket that closes the one at `i`, or `end`. Handles ( [ {. */
size_t lathe_token_close(const lathe_token_list *l, size_t i, size_t end);

/* The rules: 1, 2, 4, 6 on a template; 3, 5 on a generated file. Findings are added to the unit. */
void lathe_scan_template(lathe_scan_unit *u, const lathe_scan_input *in,
                         const lathe_scan_provider *p);
void lathe_scan_output(lathe_scan_unit *u, const lathe_scan_input *in, const lathe_scan_file *f);

#endif
