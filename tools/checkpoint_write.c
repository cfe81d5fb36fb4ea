/* SPDX-License-Identifier: Apache-2.0
 * Lists the tensors of a step, packs them into files and streams their elements. */
#include "checkpoint_write.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint_record.h"

#define NAME_BYTES 512
#define INDEX "model.safetensors.index.json"
#define CHUNK ((int64_t)1 << 20) /* elements written at once */

typedef struct {
    char *name;
    char *whole; /* name of the source, "{e}" for its parts */
    int64_t part;
    const lathe_step_source *source;
    uint64_t bytes;
    int file;
} tensor;

typedef struct {
    const lathe_step_table *table;
    const lathe_weight_reader *reader;
    const char *folder;
    tensor *tensors;
    int count, capacity;
    int files, opened; /* opened: of these, in order */
    char *message;
    size_t size;
} writer;

static lathe_status refuse(const writer *w, lathe_status status, const char *what,
                           const char *why) {
    snprintf(w->message, w->size, "%s: %s", what, why);
    return status;
}

static lathe_status add_part(writer *w, const lathe_step_source *source, const char *whole,
                             int64_t part) {
    char name[NAME_BYTES];
    if (!lathe_weights_part_name(whole, part, name, sizeof name))
        return refuse(w, LATHE_INVALID, source->tensor, "the name is too long");
    if (w->count == w->capacity) {
        const int capacity = w->capacity ? 2 * w->capacity : 256;
        tensor *more = realloc(w->tensors, (size_t)capacity * sizeof *more);
        if (!more)
            return refuse(w, LATHE_NO_MEMORY, name, "no memory");
        w->tensors = more;
        w->capacity = capacity;
    }
    tensor *t = &w->tensors[w->count];
    const lathe_step_shape shape = lathe_weights_part_shape(source);
    const uint64_t elements = (uint64_t)lathe_step_shape_count(&shape, 0);
    *t = (tensor){
        strdup(name), strdup(whole), part, source, elements * lathe_scalar_bytes(source->dtype), 0};
    ++w->count;
    return t->name && t->whole ? LATHE_OK : refuse(w, LATHE_NO_MEMORY, name, "no memory");
}

static lathe_status add_tensor(writer *w, const lathe_step_source *source, int layer) {
    char whole[NAME_BYTES];
    lathe_status status = LATHE_OK;
    if (!lathe_weights_name(source->tensor, layer, whole, sizeof whole))
        return refuse(w, LATHE_INVALID, source->tensor, "the name is too long");
    for (int64_t i = 0; status == LATHE_OK && i < lathe_weights_parts(source); ++i)
        status = add_part(w, source, whole, i);
    return status;
}

static void free_tensor(tensor *t) {
    free(t->name);
    free(t->whole);
}

static lathe_status list_tensors(writer *w) {
    lathe_status status = LATHE_OK;
    for (int i = 0; i < w->table->weight_count; ++i) {
        const lathe_step_weight *weight = &w->table->weights[i];
        const lathe_step_buffer *b = &w->table->buffers[weight->buffer];
        for (int n = 0; n < (b->per_layer ? b->layer_count : 1); ++n)
            for (int s = 0; status == LATHE_OK && s < weight->source_count; ++s)
                status = add_tensor(w, &weight->sources[s], b->per_layer ? b->layers[n] : -1);
    }
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

/* By name, without those that several weights share, packed in that order. */
static void pack(writer *w, uint64_t file_bytes) {
    int kept = 0;
    uint64_t filled = 0;
    qsort(w->tensors, (size_t)w->count, sizeof *w->tensors, compare_names);
    for (int i = 0; i < w->count; ++i) {
        if (kept > 0 && strcmp(w->tensors[kept - 1].name, w->tensors[i].name) == 0) {
            free_tensor(&w->tensors[i]);
            continue;
        }
        w->tensors[kept++] = w->tensors[i];
    }
    w->count = kept;
    w->files = kept ? 1 : 0;
    for (int i = 0; i < kept; ++i) {
        if (filled > 0 && filled + w->tensors[i].bytes > file_bytes) {
            ++w->files;
            filled = 0;
        }
        filled += w->tensors[i].bytes;
        w->tensors[i].file = w->files - 1;
    }
}

static void format_file(const writer *w, int file, char *name, size_t size) {
    snprintf(name, size, "model-%05d-of-%05d.safetensors", file + 1, w->files);
}

static const char *find_dtype(lathe_scalar t) {
    static const char *const names[] = {
        [LATHE_SCALAR_BF16] = "BF16", [LATHE_SCALAR_F32] = "F32",     [LATHE_SCALAR_F64] = "F64",
        [LATHE_SCALAR_I32] = "I32",   [LATHE_SCALAR_I64] = "I64",     [LATHE_SCALAR_U8] = "U8",
        [LATHE_SCALAR_U32] = "U32",   [LATHE_SCALAR_E4M3] = "F8_E4M3"};
    return names[t];
}

static json_t *describe(const tensor *t, uint64_t *offset) {
    json_t *shape = json_array();
    const lathe_step_shape own = lathe_weights_part_shape(t->source);
    for (int d = 0; d < own.count; ++d)
        json_array_append_new(shape, json_integer(own.dim[d]));
    const uint64_t begin = *offset;
    *offset += t->bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", find_dtype(t->source->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)*offset);
}

static char *format_header(const writer *w, int file) {
    uint64_t offset = 0;
    json_t *header = json_object();
    for (int i = 0; i < w->count; ++i)
        if (w->tensors[i].file == file)
            json_object_set_new(header, w->tensors[i].name, describe(&w->tensors[i], &offset));
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    return text;
}

static bool write_header(FILE *f, const char *text) {
    const uint64_t length = strlen(text);
    const uint64_t padded = (length + 7) / 8 * 8;
    for (int i = 0; i < 8; ++i)
        fputc((int)(padded >> (8 * i) & 255), f);
    fputs(text, f);
    for (uint64_t i = length; i < padded; ++i)
        fputc(' ', f);
    return !ferror(f);
}

static lathe_status write_tensor(const writer *w, FILE *f, const tensor *t, void *chunk) {
    const size_t item = lathe_scalar_bytes(t->source->dtype);
    const int64_t count = (int64_t)(t->bytes / item), first = t->part * count;
    for (int64_t at = 0; at < count; at += CHUNK) {
        const int64_t n = count - at < CHUNK ? count - at : CHUNK;
        const lathe_status status = w->reader->read(w->reader->context, t->source, t->whole,
                                                    first + at, n, chunk, w->message, w->size);
        if (status != LATHE_OK)
            return status;
        if (fwrite(chunk, item, (size_t)n, f) != (size_t)n)
            return refuse(w, LATHE_IO, t->name, strerror(errno));
    }
    return LATHE_OK;
}

static lathe_status write_file(writer *w, int file, void *chunk) {
    char name[64];
    char path[4096];
    format_file(w, file, name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    char *header = format_header(w, file);
    FILE *f = header ? fopen(path, "wb") : NULL;
    if (!f) {
        free(header);
        return refuse(w, LATHE_IO, path, strerror(errno));
    }
    lathe_status status = LATHE_OK;
    w->opened = file + 1;
    if (!write_header(f, header) || fflush(f) != 0)
        status = refuse(w, LATHE_IO, path, strerror(errno));
    free(header);
    for (int i = 0; status == LATHE_OK && i < w->count; ++i)
        if (w->tensors[i].file == file)
            status = write_tensor(w, f, &w->tensors[i], chunk);
    if (fclose(f) != 0 && status == LATHE_OK)
        status = refuse(w, LATHE_IO, path, strerror(errno));
    return status;
}

static lathe_status write_index(const writer *w) {
    char path[4096];
    json_t *map = json_object();
    for (int i = 0; i < w->count; ++i) {
        char name[64];
        format_file(w, w->tensors[i].file, name, sizeof name);
        json_object_set_new(map, w->tensors[i].name, json_string(name));
    }
    json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    snprintf(path, sizeof path, "%s/" INDEX, w->folder);
    const int written = index ? json_dump_file(index, path, JSON_INDENT(1)) : -1;
    json_decref(index);
    return written == 0 ? LATHE_OK : refuse(w, LATHE_IO, path, "cannot be written");
}

static lathe_status write_all(writer *w, uint64_t file_bytes) {
    lathe_status status = list_tensors(w);
    if (status != LATHE_OK)
        return status;
    pack(w, file_bytes);
    void *chunk = malloc((size_t)CHUNK * sizeof(double));
    if (!chunk)
        return refuse(w, LATHE_NO_MEMORY, w->folder, "no memory");
    for (int file = 0; status == LATHE_OK && file < w->files; ++file)
        status = write_file(w, file, chunk);
    free(chunk);
    const lathe_step_checkpoint *c = &w->table->checkpoint;
    for (int i = 0; status == LATHE_OK && i < c->record_count; ++i)
        status = lathe_checkpoint_record_write(w->folder, &c->records[i], w->message, w->size);
    return status == LATHE_OK ? write_index(w) : status;
}

/* Half a checkpoint is none. */
static void remove_files(const writer *w) {
    char name[64], path[4096];
    for (int file = 0; file < w->opened; ++file) {
        format_file(w, file, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s", w->folder, name);
        unlink(path);
    }
    for (int i = 0; i < w->table->checkpoint.record_count; ++i) {
        snprintf(path, sizeof path, "%s/%s", w->folder, w->table->checkpoint.records[i].name);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/" INDEX, w->folder);
    unlink(path);
}

lathe_status lathe_checkpoint_write(const lathe_step_table *table,
                                    const lathe_weight_reader *reader, const char *folder,
                                    uint64_t file_bytes, char *message, size_t size) {
    writer w = {
        .table = table, .reader = reader, .folder = folder, .message = message, .size = size};
    const lathe_status status = write_all(&w, file_bytes);
    if (status != LATHE_OK)
        remove_files(&w);
    for (int i = 0; i < w.count; ++i)
        free_tensor(&w.tensors[i]);
    free(w.tensors);
    return status;
}
