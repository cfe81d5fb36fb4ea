/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes .npy files. A header is a Python dictionary of three known keys; only that much
 * Python is read. */
#include "npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "\x93NUMPY\x01\x00"
#define MAGIC_BYTES 8
#define PREFIX_BYTES 10 /* magic, version, header length */

static const struct {
    const char *name;
    size_t bytes;
} types[LATHE_NPY_TYPES] = {
    [LATHE_NPY_F32] = {"<f4", 4}, [LATHE_NPY_F64] = {"<f8", 8}, [LATHE_NPY_I32] = {"<i4", 4},
    [LATHE_NPY_I64] = {"<i8", 8}, [LATHE_NPY_U8] = {"|u1", 1},  [LATHE_NPY_U16] = {"<u2", 2},
    [LATHE_NPY_U32] = {"<u4", 4},
};

size_t lathe_npy_item_bytes(lathe_npy_type type) {
    return types[type].bytes;
}

const char *lathe_npy_type_name(lathe_npy_type type) {
    return types[type].name;
}

void lathe_npy_destroy(lathe_npy *array) {
    free(array->data);
    memset(array, 0, sizeof *array);
}

typedef struct {
    const char *path;
    char *message;
    size_t size;
} report;

__attribute__((format(printf, 3, 4))) static lathe_status
refuse(const report *r, lathe_status status, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(r->message, r->size, "%s: %s", r->path, text);
    return status;
}

/* A cursor over the header's text, which ends with a zero byte. */
typedef struct {
    const char *at;
} cursor;

static void skip_blank(cursor *c) {
    while (*c->at == ' ' || *c->at == '\t' || *c->at == '\n')
        ++c->at;
}

static bool take(cursor *c, char wanted) {
    skip_blank(c);
    if (*c->at != wanted)
        return false;
    ++c->at;
    return true;
}

/* A quoted string without escapes, copied to `text`. */
static bool take_string(cursor *c, char *text, size_t size) {
    skip_blank(c);
    const char quote = *c->at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *end = strchr(c->at + 1, quote);
    if (!end || (size_t)(end - c->at) > size)
        return false;
    const size_t length = (size_t)(end - c->at - 1);
    memcpy(text, c->at + 1, length);
    text[length] = 0;
    c->at = end + 1;
    return true;
}

static bool take_word(cursor *c, const char *word) {
    skip_blank(c);
    const size_t length = strlen(word);
    if (strncmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

static bool take_size(cursor *c, int64_t *value) {
    skip_blank(c);
    if (*c->at < '0' || *c->at > '9')
        return false;
    char *end;
    errno = 0;
    const long long number = strtoll(c->at, &end, 10);
    if (errno != 0)
        return false;
    *value = number;
    c->at = end;
    return true;
}

/* "()", "(3,)", "(3, 4)". */
static bool take_shape(cursor *c, lathe_npy *array) {
    array->rank = 0;
    if (!take(c, '('))
        return false;
    while (!take(c, ')')) {
        if (array->rank == LATHE_NPY_RANK || !take_size(c, &array->shape[array->rank]))
            return false;
        ++array->rank;
        if (!take(c, ',')) {
            /* "(3)" is a number in Python, not a shape */
            return array->rank > 1 && take(c, ')');
        }
    }
    return true;
}

static bool take_type(cursor *c, lathe_npy *array, char *text, size_t size) {
    if (!take_string(c, text, size))
        return false;
    for (int t = 0; t < LATHE_NPY_TYPES; ++t)
        if (strcmp(types[t].name + 1, text + (*text ? 1 : 0)) == 0 &&
            (text[0] == '<' || types[t].bytes == 1)) {
            array->type = (lathe_npy_type)t;
            return true;
        }
    return false;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

static lathe_status parse_entry(const report *r, cursor *c, lathe_npy *array, int *seen) {
    char key[32];
    char descr[32] = "?";
    if (!take_string(c, key, sizeof key) || !take(c, ':'))
        return refuse(r, LATHE_INVALID, "the header is no dictionary");
    int bit;
    if (strcmp(key, "descr") == 0) {
        bit = HAS_DESCR;
        if (!take_type(c, array, descr, sizeof descr))
            return refuse(r, LATHE_INVALID,
                          "type '%s'; allowed are <f4 <f8 <i4 <i8 <u2 <u4 and |u1", descr);
    } else if (strcmp(key, "fortran_order") == 0) {
        bit = HAS_ORDER;
        if (!take_word(c, "False"))
            return refuse(r, LATHE_INVALID, "fortran_order must be False");
    } else if (strcmp(key, "shape") == 0) {
        bit = HAS_SHAPE;
        if (!take_shape(c, array))
            return refuse(r, LATHE_INVALID, "the shape must be a tuple of at most %d sizes",
                          LATHE_NPY_RANK);
    } else {
        return refuse(r, LATHE_INVALID, "unknown header key '%s'", key);
    }
    if (*seen & bit)
        return refuse(r, LATHE_INVALID, "header key '%s' occurs twice", key);
    *seen |= bit;
    return LATHE_OK;
}

static lathe_status parse_header(const report *r, const char *text, lathe_npy *array) {
    cursor c = {text};
    int seen = 0;
    if (!take(&c, '{'))
        return refuse(r, LATHE_INVALID, "the header is no dictionary");
    while (!take(&c, '}')) {
        const lathe_status status = parse_entry(r, &c, array, &seen);
        if (status != LATHE_OK)
            return status;
        if (!take(&c, ',') && *c.at != '}')
            return refuse(r, LATHE_INVALID, "the header is no dictionary");
    }
    skip_blank(&c);
    if (*c.at)
        return refuse(r, LATHE_INVALID, "text follows the header's dictionary");
    if (seen != HAS_ALL)
        return refuse(r, LATHE_INVALID, "the header lacks descr, fortran_order or shape");
    return LATHE_OK;
}

static lathe_status count_elements(const report *r, lathe_npy *array) {
    const int64_t limit = INT64_MAX / (int64_t)types[array->type].bytes;
    bool empty = false;
    for (int d = 0; d < array->rank; ++d)
        empty = empty || array->shape[d] == 0;
    array->count = empty ? 0 : 1;
    for (int d = 0; d < array->rank && !empty; ++d) {
        if (array->shape[d] > limit / array->count)
            return refuse(r, LATHE_INVALID, "the shape overflows");
        array->count *= array->shape[d];
    }
    return LATHE_OK;
}

/* Checks the prefix and copies the header's text, terminated; the caller frees it. */
static lathe_status read_header(const report *r, FILE *file, char **text, size_t *offset) {
    unsigned char prefix[PREFIX_BYTES];
    if (fread(prefix, 1, sizeof prefix, file) != sizeof prefix ||
        memcmp(prefix, MAGIC, MAGIC_BYTES) != 0)
        return refuse(r, LATHE_INVALID, "no .npy file of version 1.0");
    const size_t length = (size_t)prefix[8] | (size_t)prefix[9] << 8;
    *text = malloc(length + 1);
    if (!*text)
        return refuse(r, LATHE_NO_MEMORY, "no memory for the header");
    if (fread(*text, 1, length, file) != length)
        return refuse(r, LATHE_INVALID, "the file ends within the header");
    (*text)[length] = 0;
    if (strlen(*text) != length)
        return refuse(r, LATHE_INVALID, "a zero byte stands in the header");
    *offset = PREFIX_BYTES + length;
    return LATHE_OK;
}

/* The file is as long as its header says. */
static lathe_status check_length(const report *r, FILE *file, size_t offset,
                                 const lathe_npy *array) {
    const size_t bytes = (size_t)array->count * types[array->type].bytes;
    if (fseek(file, 0, SEEK_END) != 0)
        return refuse(r, LATHE_IO, "%s", strerror(errno));
    const long end = ftell(file);
    if (end < 0 || (size_t)end < offset || (size_t)end - offset != bytes)
        return refuse(r, LATHE_INVALID, "the shape asks for %zu bytes, the file holds %lld", bytes,
                      (long long)end - (long long)offset);
    return fseek(file, (long)offset, SEEK_SET) == 0 ? LATHE_OK
                                                    : refuse(r, LATHE_IO, "%s", strerror(errno));
}

static lathe_status read_data(const report *r, FILE *file, lathe_npy *array) {
    const size_t bytes = (size_t)array->count * types[array->type].bytes;
    array->data = malloc(bytes ? bytes : 1);
    if (!array->data)
        return refuse(r, LATHE_NO_MEMORY, "no memory for %zu bytes", bytes);
    if (fread(array->data, 1, bytes, file) != bytes)
        return refuse(r, LATHE_IO, "the file cannot be read");
    return LATHE_OK;
}

/* Type and shape; the file stands where its data begins. */
static lathe_status read_shape(const report *r, FILE *file, lathe_npy *array) {
    char *text = NULL;
    size_t offset = 0;
    lathe_status status = read_header(r, file, &text, &offset);
    if (status == LATHE_OK)
        status = parse_header(r, text, array);
    if (status == LATHE_OK)
        status = count_elements(r, array);
    if (status == LATHE_OK)
        status = check_length(r, file, offset, array);
    free(text);
    return status;
}

static lathe_status read_file(const report *r, bool data, lathe_npy *array) {
    memset(array, 0, sizeof *array);
    FILE *file = fopen(r->path, "rb");
    if (!file)
        return refuse(r, LATHE_IO, "%s", strerror(errno));
    lathe_status status = read_shape(r, file, array);
    if (status == LATHE_OK && data)
        status = read_data(r, file, array);
    if (status != LATHE_OK)
        lathe_npy_destroy(array);
    fclose(file);
    return status;
}

lathe_status lathe_npy_read(const char *path, lathe_npy *array, char *message, size_t size) {
    const report r = {path, message, size};
    return read_file(&r, true, array);
}

lathe_status lathe_npy_read_header(const char *path, lathe_npy *array, char *message, size_t size) {
    const report r = {path, message, size};
    return read_file(&r, false, array);
}

/* The header padded so that the data starts at a multiple of 64, as numpy does. Returns its length.
 */
static size_t format_header(const lathe_npy *array, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                types[array->type].name);
    for (int d = 0; d < array->rank; ++d)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", d ? ", " : "",
                              (long long)array->shape[d]);
    n += (size_t)snprintf(text + n, size - n, array->rank == 1 ? ",), }" : "), }");
    while ((PREFIX_BYTES + n + 1) % 64 != 0)
        text[n++] = ' ';
    text[n++] = '\n';
    return n;
}

lathe_status lathe_npy_write(const char *path, const lathe_npy *array, char *message, size_t size) {
    const report r = {path, message, size};
    char text[512];
    const size_t length = format_header(array, text, sizeof text - 64);
    unsigned char prefix[PREFIX_BYTES];
    memcpy(prefix, MAGIC, MAGIC_BYTES);
    prefix[8] = (unsigned char)(length & 255);
    prefix[9] = (unsigned char)(length >> 8);
    FILE *file = fopen(path, "wb");
    if (!file)
        return refuse(&r, LATHE_IO, "%s", strerror(errno));
    struct stat info;
    const bool regular = fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode);
    const size_t bytes = (size_t)array->count * types[array->type].bytes;
    const bool whole = fwrite(prefix, 1, sizeof prefix, file) == sizeof prefix &&
                       fwrite(text, 1, length, file) == length &&
                       fwrite(array->data, 1, bytes, file) == bytes;
    if (fclose(file) == 0 && whole)
        return LATHE_OK;
    const int error = errno;
    if (regular)            /* a device stays */
        (void)remove(path); /* half a file is none */
    return refuse(&r, LATHE_IO, "the file cannot be written: %s", strerror(error));
}
