/* SPDX-License-Identifier: Apache-2.0
 * Opens safetensors checkpoints. A file must be what the format says: a JSON header (and an index)
 * of at most 100 MB, then tensors that fill the rest of the file without hole or overlap. */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "findings.h"

#define HEADER_LIMIT 100000000u
#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

typedef struct {
    char *path;
    const char *name; /* last component of path */
    unsigned char *map;
    size_t bytes;
    json_t *header;
    lathe_safetensor *tensors; /* in the order of their data */
    size_t count;
    bool intact;
} shard;

struct lathe_safetensors {
    char *folder;
    shard *shards;
    size_t shard_count;
    const lathe_safetensor **tensors; /* by name */
    size_t count;
    lathe_findings *wrong; /* while it is opened */
    lathe_status status;   /* of the first that is */
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},
};

/* One more thing that is wrong; what can be looked at behind it still is. */
__attribute__((format(printf, 4, 5))) static lathe_status
refuse(lathe_safetensors *c, lathe_status status, const char *where, const char *format, ...) {
    char text[1200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    lathe_findings_add(c->wrong, "%s: %s", where, text);
    if (c->status == LATHE_OK)
        c->status = status;
    return status;
}

static char *join_path(const char *folder, const char *name) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return NULL;
    return path;
}

static size_t find_item_bytes(const char *dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; ++i)
        if (strcmp(dtypes[i].name, dtype) == 0)
            return dtypes[i].bytes;
    return 0;
}

static lathe_status map_file(lathe_safetensors *c, shard *s) {
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* no pipe is waited for */
    struct stat st;
    if (fd < 0)
        return refuse(c, LATHE_IO, s->path, "%s", strerror(errno));
    const bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (!regular || st.st_size < 8) {
        close(fd);
        return refuse(c, LATHE_INVALID, s->path, "no safetensors file: %s",
                      regular ? "shorter than 8 bytes" : "no regular file");
    }
    s->bytes = (size_t)st.st_size;
    void *map = mmap(NULL, s->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    close(fd);
    if (map == MAP_FAILED)
        return refuse(c, LATHE_IO, s->path, "cannot be mapped: %s", strerror(error));
    s->map = map;
    return LATHE_OK;
}

/* Shape and dtype of one entry; `expected` gets the bytes that they ask for. */
static lathe_status parse_shape(lathe_safetensors *c, const shard *s, lathe_safetensor *t,
                                const json_t *shape, size_t *expected) {
    size_t bytes = find_item_bytes(t->dtype);
    if (bytes == 0)
        return refuse(c, LATHE_INVALID, s->path, "tensor '%s': unknown dtype '%s'", t->name,
                      t->dtype);
    if (json_array_size(shape) > LATHE_SAFETENSORS_RANK)
        return refuse(c, LATHE_INVALID, s->path, "tensor '%s': more than %d dimensions", t->name,
                      LATHE_SAFETENSORS_RANK);
    t->rank = (int)json_array_size(shape);
    for (int d = 0; d < t->rank; ++d) {
        const json_t *n = json_array_get(shape, (size_t)d);
        const json_int_t value = json_is_integer(n) ? json_integer_value(n) : -1;
        if (value < 0 || (value > 0 && bytes > SIZE_MAX / 2 / (size_t)value))
            return refuse(c, LATHE_INVALID, s->path, "tensor '%s': bad size in dimension %d",
                          t->name, d);
        t->shape[d] = value;
        bytes *= (size_t)value;
    }
    *expected = bytes;
    return LATHE_OK;
}

static lathe_status parse_offsets(lathe_safetensors *c, const shard *s, lathe_safetensor *t,
                                  const json_t *offsets, size_t data_start, size_t expected) {
    const json_t *b = json_array_get(offsets, 0);
    const json_t *e = json_array_get(offsets, 1);
    const json_int_t begin = json_is_integer(b) ? json_integer_value(b) : -1;
    const json_int_t end = json_is_integer(e) ? json_integer_value(e) : -1;
    const size_t limit = s->bytes - data_start;
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin || (size_t)end > limit)
        return refuse(c, LATHE_INVALID, s->path,
                      "tensor '%s': data_offsets are not within the file's %zu bytes of data",
                      t->name, limit);
    if ((size_t)(end - begin) != expected)
        return refuse(c, LATHE_INVALID, s->path,
                      "tensor '%s': dtype and shape ask for %zu bytes, data_offsets hold %zu",
                      t->name, expected, (size_t)(end - begin));
    t->data = s->map + data_start + (size_t)begin;
    t->bytes = expected;
    return LATHE_OK;
}

static lathe_status parse_tensor(lathe_safetensors *c, const shard *s, lathe_safetensor *t,
                                 const char *name, const json_t *entry, size_t data_start) {
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t expected = 0;
    t->name = name;
    t->file = s->path;
    t->dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!t->dtype || !json_is_array(shape) || !json_is_array(offsets))
        return refuse(c, LATHE_INVALID, s->path, "tensor '%s' lacks dtype, shape or data_offsets",
                      name);
    lathe_status status = parse_shape(c, s, t, shape, &expected);
    if (status == LATHE_OK)
        status = parse_offsets(c, s, t, offsets, data_start, expected);
    return status;
}

static int compare_data(const void *a, const void *b) {
    const lathe_safetensor *x = a;
    const lathe_safetensor *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors must tile the data exactly. */
static lathe_status check_tiling(lathe_safetensors *c, shard *s, size_t data_start) {
    const unsigned char *at = s->map + data_start;
    const char *last = NULL; /* that ends at `at` */
    lathe_status status = LATHE_OK;
    qsort(s->tensors, s->count, sizeof *s->tensors, compare_data);
    for (size_t i = 0; i < s->count; ++i) {
        const lathe_safetensor *t = &s->tensors[i];
        if (t->data < at && last)
            status = refuse(c, LATHE_INVALID, s->path, "tensor '%s' overlaps '%s'", t->name, last);
        if (t->data > at)
            status = refuse(c, LATHE_INVALID, s->path, "a hole of %zu bytes before tensor '%s'",
                            (size_t)(t->data - at), t->name);
        if (t->data + t->bytes >= at) {
            at = t->data + t->bytes;
            last = t->name;
        }
    }
    if (at != s->map + s->bytes)
        status = refuse(c, LATHE_INVALID, s->path, "%zu bytes belong to no tensor",
                        (size_t)(s->map + s->bytes - at));
    return status;
}

static lathe_status parse_header(lathe_safetensors *c, shard *s, size_t *data_start) {
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i)
        length |= (uint64_t)s->map[i] << (8 * i);
    if (length > HEADER_LIMIT || length > s->bytes - 8)
        return refuse(c, LATHE_INVALID, s->path,
                      "found a header of %llu bytes in a file of %zu, allowed: at most %u, and no "
                      "more than the file holds",
                      (unsigned long long)length, s->bytes, HEADER_LIMIT);
    json_error_t error;
    s->header =
        json_loadb((const char *)s->map + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!s->header)
        return refuse(c, LATHE_INVALID, s->path, "header: %s (line %d, column %d)", error.text,
                      error.line, error.column);
    if (!json_is_object(s->header))
        return refuse(c, LATHE_INVALID, s->path, "the header is no JSON object");
    json_object_del(s->header, "__metadata__");
    *data_start = 8 + (size_t)length;
    return LATHE_OK;
}

static lathe_status open_shard(lathe_safetensors *c, shard *s) {
    size_t data_start = 0;
    lathe_status status = map_file(c, s);
    if (status == LATHE_OK)
        status = parse_header(c, s, &data_start);
    if (status != LATHE_OK)
        return status;
    s->tensors = calloc(json_object_size(s->header) + 1, sizeof *s->tensors);
    if (!s->tensors)
        return refuse(c, LATHE_NO_MEMORY, s->path, "no memory for the header");
    const char *name;
    json_t *entry;
    json_object_foreach(s->header, name, entry) {
        const lathe_status one = parse_tensor(c, s, &s->tensors[s->count], name, entry, data_start);
        if (one == LATHE_OK)
            ++s->count;
        else
            status = one;
    }
    if (status == LATHE_OK) /* without a tensor's place there are holes only */
        status = check_tiling(c, s, data_start);
    s->intact = status == LATHE_OK;
    return status;
}

static int compare_names(const void *a, const void *b) {
    const lathe_safetensor *const *x = a;
    const lathe_safetensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Adds a shard for `path`, which it then owns. NULL where there is no memory. */
static shard *add_shard(lathe_safetensors *c, char *path) {
    shard *all = path ? realloc(c->shards, (c->shard_count + 1) * sizeof *all) : NULL;
    if (!all) {
        free(path);
        return NULL;
    }
    c->shards = all;
    shard *s = &all[c->shard_count++];
    const char *slash = strrchr(path, '/');
    *s = (shard){.path = path, .name = slash ? slash + 1 : path};
    return s;
}

/* Every tensor of every file, each of them once. */
static lathe_status collect(lathe_safetensors *c) {
    size_t most = 1;
    lathe_status status = LATHE_OK;
    for (size_t i = 0; i < c->shard_count; ++i)
        most += c->shards[i].count;
    c->tensors = calloc(most, sizeof *c->tensors);
    if (!c->tensors)
        return refuse(c, LATHE_NO_MEMORY, c->folder, "no memory");
    for (size_t i = 0; i < c->shard_count; ++i)
        for (size_t n = 0; n < c->shards[i].count; ++n)
            c->tensors[c->count++] = &c->shards[i].tensors[n];
    qsort(c->tensors, c->count, sizeof *c->tensors, compare_names);
    for (size_t i = 1; i < c->count; ++i)
        if (strcmp(c->tensors[i - 1]->name, c->tensors[i]->name) == 0)
            status = refuse(c, LATHE_INVALID, c->tensors[i - 1]->file, "tensor '%s' is in %s, too",
                            c->tensors[i]->name, c->tensors[i]->file);
    return status;
}

static lathe_status open_single(lathe_safetensors *c, const char *path) {
    shard *s = add_shard(c, strdup(path));
    if (!s)
        return refuse(c, LATHE_NO_MEMORY, path, "no memory");
    const lathe_status status = open_shard(c, s);
    return status == LATHE_OK ? collect(c) : status;
}

static shard *find_shard(lathe_safetensors *c, const char *name) {
    for (size_t i = 0; i < c->shard_count; ++i)
        if (strcmp(c->shards[i].name, name) == 0)
            return &c->shards[i];
    return NULL;
}

/* The file that the map names for a tensor, opened once. A name that leaves the folder is refused.
 */
static lathe_status open_named(lathe_safetensors *c, const char *index, const char *folder,
                               const char *tensor, const char *name) {
    if (!name || !*name || strchr(name, '/') || name[0] == '.')
        return refuse(c, LATHE_INVALID, index, "tensor '%s': a file name without folders is wanted",
                      tensor);
    if (find_shard(c, name))
        return LATHE_OK;
    shard *s = add_shard(c, join_path(folder, name));
    return s ? open_shard(c, s) : refuse(c, LATHE_NO_MEMORY, index, "no memory");
}

/* What the map says, of the files that are whole. */
static lathe_status check_map(lathe_safetensors *c, const char *index, json_t *map) {
    const char *tensor;
    json_t *file;
    lathe_status status = LATHE_OK;
    json_object_foreach(map, tensor, file) {
        const char *name = json_string_value(file);
        const shard *s = name ? find_shard(c, name) : NULL;
        if (s && s->intact && !json_object_get(s->header, tensor))
            status = refuse(c, LATHE_INVALID, index, "tensor '%s' is not in %s", tensor, s->name);
    }
    return status;
}

static lathe_status open_files(lathe_safetensors *c, const char *index, const char *folder,
                               json_t *map) {
    const char *tensor;
    json_t *file;
    json_object_foreach(map, tensor, file)(void)
        open_named(c, index, folder, tensor, json_string_value(file));
    (void)check_map(c, index, map);
    (void)collect(c);
    return c->status;
}

static lathe_status open_index(lathe_safetensors *c, const char *path, const char *folder) {
    json_error_t error;
    char *text;
    size_t bytes;
    const int failed = lathe_file_read(path, HEADER_LIMIT, &text, &bytes);
    if (failed)
        return refuse(c, LATHE_IO, path, "%s", strerror(failed));
    json_t *index = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!index)
        return refuse(c, LATHE_INVALID, path, "%s (line %d, column %d)", error.text, error.line,
                      error.column);
    json_t *map = json_object_get(index, "weight_map");
    lathe_status status = LATHE_OK;
    if (!json_is_object(map))
        status = refuse(c, LATHE_INVALID, path, "no object 'weight_map'");
    if (status == LATHE_OK)
        status = open_files(c, path, folder, map);
    json_decref(index);
    return status;
}

static lathe_status open_folder(lathe_safetensors *c, const char *folder) {
    char *index = join_path(folder, INDEX_NAME);
    char *single = join_path(folder, SINGLE_NAME);
    lathe_status status;
    if (!index || !single)
        status = refuse(c, LATHE_NO_MEMORY, folder, "no memory");
    else if (access(index, F_OK) == 0)
        status = open_index(c, index, folder);
    else if (access(single, F_OK) == 0)
        status = open_single(c, single);
    else
        status = refuse(c, LATHE_IO, folder, "holds neither " INDEX_NAME " nor " SINGLE_NAME);
    free(index);
    free(single);
    return status;
}

/* Of the file at `path`. */
static char *find_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    return !slash ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static lathe_status open_any(lathe_safetensors *c, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return refuse(c, LATHE_IO, path, "%s", strerror(errno));
    c->folder = S_ISDIR(st.st_mode) ? strdup(path) : find_folder(path);
    if (!c->folder)
        return refuse(c, LATHE_NO_MEMORY, path, "no memory");
    if (S_ISDIR(st.st_mode))
        return open_folder(c, path);
    const size_t length = strlen(path);
    if (length < 5 || strcmp(path + length - 5, ".json") != 0)
        return open_single(c, path);
    return open_index(c, path, c->folder);
}

lathe_status lathe_safetensors_open(const char *path, lathe_safetensors **checkpoint, char *message,
                                    size_t size) {
    *checkpoint = NULL;
    lathe_safetensors *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(message, size, "%s: no memory", path);
        return LATHE_NO_MEMORY;
    }
    lathe_findings wrong;
    lathe_findings_open(&wrong, message, size);
    c->wrong = &wrong;
    const lathe_status status = open_any(c, path);
    c->wrong = NULL;
    lathe_findings_close(&wrong);
    if (status != LATHE_OK) {
        lathe_safetensors_close(c);
        return status;
    }
    *checkpoint = c;
    return LATHE_OK;
}

void lathe_safetensors_close(lathe_safetensors *c) {
    if (!c)
        return;
    for (size_t i = 0; i < c->shard_count; ++i) {
        shard *s = &c->shards[i];
        if (s->map)
            munmap(s->map, s->bytes);
        json_decref(s->header);
        free(s->tensors);
        free(s->path);
    }
    free(c->shards);
    free(c->tensors);
    free(c->folder);
    free(c);
}

static int compare_to_name(const void *key, const void *element) {
    const lathe_safetensor *const *t = element;
    return strcmp(key, (*t)->name);
}

const lathe_safetensor *lathe_safetensors_find(const lathe_safetensors *c, const char *name) {
    const lathe_safetensor *const *t =
        bsearch(name, c->tensors, c->count, sizeof *c->tensors, compare_to_name);
    return t ? *t : NULL;
}

const char *lathe_safetensors_folder(const lathe_safetensors *c) {
    return c->folder;
}

size_t lathe_safetensors_count(const lathe_safetensors *c) {
    return c->count;
}

const lathe_safetensor *lathe_safetensors_at(const lathe_safetensors *c, size_t index) {
    return c->tensors[index];
}
