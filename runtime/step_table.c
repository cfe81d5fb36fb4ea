/* SPDX-License-Identifier: Apache-2.0
 * Owns: reading step.json: its top level, buffers, weights, mailboxes and layers. Kernels and
 * operations are read by step_kernels.c and step_ops.c. Refuses whatever README.md does not allow.
 */
#include "step_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "gpu.h"
#include "step_read.h"

#define LARGEST_FILE ((size_t)64 << 20)
#define LARGEST_DIM ((int64_t)1 << 40)
#define LARGEST_BYTES ((int64_t)1 << 46)
#define LARGEST_TP 16

typedef struct {
    lathe_step_table table; /* first: what callers hold */
    lathe_pool *pool;
    lathe_step_index buffers;
} owned_table;

int64_t lathe_step_shape_count(const lathe_step_shape *shape, int skip) {
    int64_t count = 1;
    for (int i = skip; i < shape->count; ++i)
        count *= shape->dim[i];
    return count;
}

bool lathe_step_shape_bytes(lathe_json *j, const lathe_step_shape *shape, int skip,
                            lathe_scalar type, int64_t *bytes) {
    int64_t product = (int64_t)lathe_scalar_bytes(type);
    for (int i = skip; i < shape->count; ++i) {
        if (__builtin_mul_overflow(product, shape->dim[i], &product) || product > LARGEST_BYTES)
            return lathe_json_fail_at(j, "shape", "found more than 2^46 bytes, allowed: fewer");
    }
    *bytes = product;
    return true;
}

bool lathe_step_read_shape(lathe_json *j, const json_t *object, int64_t min, bool pages,
                           lathe_step_shape *shape) {
    const json_t *array;
    if (!lathe_json_array(j, object, "shape", 0, LATHE_STEP_MAX_DIMS, &array, &shape->count))
        return false;
    const size_t mark = lathe_json_enter(j, "shape");
    for (int i = 0; i < shape->count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        const int64_t least = pages && i == 0 ? 0 : min;
        if (!lathe_json_int_value(j, json_array_get(array, (size_t)i), least, LARGEST_DIM,
                                  &shape->dim[i]))
            return false;
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    return true;
}

bool lathe_step_read_scalar(lathe_json *j, const json_t *object, lathe_scalar *type) {
    int number = -1;
    if (!lathe_json_choice(j, object, "dtype", "bf16 f32 f64 i32 i64 u8 u32 e4m3", &number))
        return false;
    if (number < 0)
        return lathe_json_fail(j, "key \"dtype\" is missing");
    *type = (lathe_scalar)number; /* the list above is in the order of the enum */
    return true;
}

bool lathe_step_read_form(lathe_json *j, const json_t *object, lathe_step_form *form) {
    int number = LATHE_FORM_WHOLE;
    if (!lathe_json_choice(j, object, "form", "whole k_partials rank_partials columns", &number))
        return false;
    *form = (lathe_step_form)number;
    return true;
}

bool lathe_step_read_layers(lathe_step_reader *r, const json_t *object, const int **layers,
                            int *count) {
    lathe_json *j = &r->json;
    const json_t *array;
    if (!lathe_json_array(j, object, "layers", 0, LATHE_STEP_MAX_LAYERS, &array, count))
        return false;
    int *list = lathe_json_alloc(j, *count, sizeof *list);
    if (!list)
        return false;
    const size_t mark = lathe_json_enter(j, "layers");
    char found[64];
    int64_t least = 0;
    for (int i = 0; i < *count; ++i) {
        int64_t layer;
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (least >= r->table->layer_count)
            return lathe_json_fail(j, "found %s, allowed: no more: the step has %d layers",
                                   lathe_json_show(json_array_get(array, (size_t)i), found),
                                   r->table->layer_count);
        if (!lathe_json_int_value(j, json_array_get(array, (size_t)i), least,
                                  r->table->layer_count - 1, &layer))
            return false;
        lathe_json_leave(j, inner);
        list[i] = (int)layer;
        least = layer + 1;
    }
    lathe_json_leave(j, mark);
    *layers = list;
    return true;
}

static bool read_format(lathe_json *j, const json_t *root) {
    const json_t *format = json_object_get(root, "format");
    char found[64];
    if (json_is_integer(format) && json_integer_value(format) > LATHE_STEP_FORMAT)
        return lathe_json_fail_at(j, "format",
                                  "found %lld, allowed: %d; a newer lathe wrote this directory",
                                  (long long)json_integer_value(format), LATHE_STEP_FORMAT);
    if (!json_is_integer(format) || json_integer_value(format) != LATHE_STEP_FORMAT)
        return lathe_json_fail_at(j, "format", "found %s, allowed: %d",
                                  lathe_json_show(format, found), LATHE_STEP_FORMAT);
    return true;
}

/* `lathe gen --only` leaves kernels out; its directory is for reading. */
static bool refuse_only(lathe_json *j, const json_t *root) {
    const json_t *only = json_object_get(root, "only");
    return !only || lathe_json_fail_at(j, "only",
                                       "the directory was generated with --only %.200s and lacks "
                                       "kernels; allowed: one generated without",
                                       json_is_string(only) ? json_string_value(only) : "");
}

static bool read_ceilings(lathe_json *j, const json_t *root, lathe_step_ceilings *c) {
    const json_t *object = json_object_get(root, "ceilings");
    if (!object)
        return true;
    const size_t mark = lathe_json_enter(j, "ceilings");
    const bool ok = lathe_json_object(j, object, "bf16_tflops read_gb_s") &&
                    lathe_json_int(j, object, "bf16_tflops", 1, 1000000, &c->bf16_tflops) &&
                    lathe_json_int(j, object, "read_gb_s", 1, 1000000, &c->read_gb_s);
    if (ok)
        lathe_json_leave(j, mark);
    return ok;
}

static bool read_limits(lathe_json *j, const json_t *root, lathe_step_table *t) {
    const json_t *limits = json_object_get(root, "limits");
    const size_t mark = lathe_json_enter(j, "limits");
    const bool ok = lathe_json_object(j, limits, "max_context page_tokens max_rows max_requests") &&
                    lathe_json_int(j, limits, "max_context", 1, INT32_MAX, &t->max_context) &&
                    lathe_json_int(j, limits, "page_tokens", 1, 1 << 20, &t->page_tokens) &&
                    lathe_json_int(j, limits, "max_rows", 1, 1 << 20, &t->max_rows) &&
                    lathe_json_int(j, limits, "max_requests", 1, 1 << 20, &t->max_requests);
    lathe_json_leave(j, mark);
    return ok;
}

static bool read_group(lathe_json *j, const json_t *value, lathe_step_group *g) {
    return lathe_json_object(j, value, "name window table_width") &&
           lathe_json_name(j, value, "name", LATHE_NAME_WORD, &g->name) &&
           lathe_json_int(j, value, "window", 0, INT32_MAX, &g->window) &&
           lathe_json_int(j, value, "table_width", 1, INT32_MAX, &g->table_width);
}

static bool read_groups(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    const json_t *array;
    lathe_step_index names;
    if (!lathe_json_array(j, root, "groups", 0, 64, &array, &r->table->group_count))
        return false;
    lathe_step_group *groups = lathe_json_alloc(j, r->table->group_count, sizeof *groups);
    if (!groups || !lathe_step_index_create(j, r->table->group_count, &names))
        return false;
    r->table->groups = groups;
    for (int i = 0; i < r->table->group_count; ++i) {
        const size_t mark = lathe_json_enter(j, "groups");
        lathe_json_enter_index(j, (size_t)i);
        if (!read_group(j, json_array_get(array, (size_t)i), &groups[i]) ||
            !lathe_step_index_add(j, &names, groups[i].name, i))
            return false;
        lathe_json_leave(j, mark);
    }
    return true;
}

static int find_text(const char *const *list, int count, const char *text) {
    for (int i = 0; i < count; ++i)
        if (strcmp(list[i], text) == 0)
            return i;
    return -1;
}

/* Whether the first variant has a list of operations for the kind; what else is amiss with it is
 * said where the variants are read. */
static bool has_kind(const json_t *root, const char *name) {
    const json_t *variant = json_array_get(json_object_get(root, "variants"), 0);
    const json_t *kinds = json_object_get(variant, "kinds");
    return !json_is_object(kinds) || json_object_get(kinds, name);
}

static bool read_layer_kinds(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    const json_t *array;
    if (!lathe_json_array(j, root, "layers", 1, LATHE_STEP_MAX_LAYERS, &array, &t->layer_count))
        return false;
    int *kinds = lathe_json_alloc(j, t->layer_count, sizeof *kinds);
    const char **names = lathe_json_alloc(j, t->layer_count, sizeof *names);
    if (!kinds || !names)
        return false;
    const size_t mark = lathe_json_enter(j, "layers");
    for (int i = 0; i < t->layer_count; ++i) {
        const char *name;
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!lathe_json_name_value(j, json_array_get(array, (size_t)i), LATHE_NAME_WORD, &name))
            return false;
        if (!has_kind(root, name))
            return lathe_json_fail(
                j, "kind \"%.60s\" does not exist, allowed: those of variants[0].kinds", name);
        lathe_json_leave(j, inner);
        kinds[i] = find_text(names, t->kind_count, name);
        if (kinds[i] < 0) {
            kinds[i] = t->kind_count;
            names[t->kind_count++] = name;
        }
    }
    lathe_json_leave(j, mark);
    t->layer_kinds = kinds;
    t->kind_names = names;
    return true;
}

const char *lathe_step_form_name(lathe_step_form form) {
    static const char *const names[] = {"whole", "k_partials", "rank_partials", "columns"};
    return names[form];
}

#define LIFETIMES "weight prepared kv scratch persistent mailbox input output build"

const char *lathe_step_lifetime_name(lathe_step_lifetime lifetime) {
    static const char *const names[] = {"weight",  "prepared", "kv",     "scratch", "persistent",
                                        "mailbox", "input",    "output", "build"};
    return names[lifetime];
}

static bool read_lifetime(lathe_json *j, const json_t *value, lathe_step_buffer *b) {
    int lifetime = -1, scope = 0;
    if (!lathe_json_choice(j, value, "lifetime", LIFETIMES, &lifetime) ||
        !lathe_json_choice(j, value, "scope", "step layer", &scope))
        return false;
    b->lifetime = (lathe_step_lifetime)lifetime;
    b->per_layer = scope == 1;
    return true;
}

static bool read_buffer_group(lathe_step_reader *r, const json_t *value, lathe_step_buffer *b) {
    lathe_json *j = &r->json;
    const char *group;
    b->group = -1;
    if (b->lifetime == LATHE_LIFETIME_KV && b->shape.count == 0)
        return lathe_json_fail_at(j, "shape", "found [], allowed: pages first");
    if (!json_object_get(value, "group")) {
        if (b->lifetime == LATHE_LIFETIME_KV)
            return lathe_json_fail(j, "key \"group\" is missing");
        return true;
    }
    if (!lathe_json_name(j, value, "group", LATHE_NAME_WORD, &group))
        return false;
    for (int g = 0; g < r->table->group_count; ++g)
        if (strcmp(r->table->groups[g].name, group) == 0)
            b->group = g;
    return b->group >= 0 ||
           lathe_json_fail_at(j, "group", "found \"%.60s\", allowed: a name in groups", group);
}

static bool read_buffer(lathe_step_reader *r, const json_t *value, lathe_step_buffer *b) {
    lathe_json *j = &r->json;
    b->line = "";
    if (!lathe_json_object(j, value,
                           "name dtype shape lifetime scope form? line? layers? group? zeroed?") ||
        !lathe_json_name(j, value, "name", LATHE_NAME_WORD, &b->name) ||
        !lathe_step_read_scalar(j, value, &b->dtype) || !read_lifetime(j, value, b) ||
        !lathe_step_read_form(j, value, &b->form) ||
        !lathe_json_bool(j, value, "zeroed", &b->zeroed))
        return false;
    const bool pages = b->lifetime == LATHE_LIFETIME_KV;
    if (!lathe_step_read_shape(j, value, 1, pages, &b->shape) || !read_buffer_group(r, value, b) ||
        !lathe_step_shape_bytes(j, &b->shape, pages ? 1 : 0, b->dtype, &b->fixed_bytes))
        return false;
    if (json_object_get(value, "line") &&
        !lathe_json_name(j, value, "line", LATHE_NAME_TEXT, &b->line))
        return false;
    if (b->per_layer != (json_object_get(value, "layers") != NULL))
        return lathe_json_fail_at(j, "layers",
                                  "found %s, allowed: with scope \"layer\", and only then",
                                  b->per_layer ? "nothing" : "a list");
    return !b->per_layer || lathe_step_read_layers(r, value, &b->layers, &b->layer_count);
}

static bool read_buffers(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    const json_t *array;
    if (!lathe_json_array(j, root, "buffers", 0, LATHE_STEP_MAX_LIST, &array, &t->buffer_count))
        return false;
    lathe_step_buffer *buffers = lathe_json_alloc(j, t->buffer_count, sizeof *buffers);
    if (!buffers || !lathe_step_index_create(j, t->buffer_count, &r->buffers))
        return false;
    t->buffers = buffers;
    for (int i = 0; i < t->buffer_count; ++i) {
        const size_t mark = lathe_json_enter(j, "buffers");
        lathe_json_enter_index(j, (size_t)i);
        if (!read_buffer(r, json_array_get(array, (size_t)i), &buffers[i]) ||
            !lathe_step_index_add(j, &r->buffers, buffers[i].name, i))
            return false;
        lathe_json_leave(j, mark);
    }
    return true;
}

static bool read_mailboxes(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    const json_t *array;
    if (!lathe_json_array(j, root, "mailboxes", 0, 64, &array, &t->mailbox_count))
        return false;
    lathe_step_mailbox *boxes = lathe_json_alloc(j, t->mailbox_count, sizeof *boxes);
    if (!boxes || !lathe_step_index_create(j, t->mailbox_count, &r->mailboxes))
        return false;
    t->mailboxes = boxes;
    for (int i = 0; i < t->mailbox_count; ++i) {
        const size_t mark = lathe_json_enter(j, "mailboxes");
        lathe_json_enter_index(j, (size_t)i);
        const json_t *value = json_array_get(array, (size_t)i);
        int64_t index;
        if (!lathe_json_object(j, value, "name bytes index") ||
            !lathe_json_name(j, value, "name", LATHE_NAME_WORD, &boxes[i].name) ||
            !lathe_json_int(j, value, "bytes", 1, (int64_t)1 << 36, &boxes[i].bytes) ||
            !lathe_json_int(j, value, "index", 0, t->mailbox_count - 1, &index) ||
            !lathe_step_index_add(j, &r->mailboxes, boxes[i].name, i))
            return false;
        boxes[i].index = (int)index;
        for (int other = 0; other < i; ++other) /* a fault names an exchange by its index */
            if (boxes[other].index == boxes[i].index)
                return lathe_json_fail_at(j, "index", "found %d a second time (first at [%d])",
                                          boxes[i].index, other);
        lathe_json_leave(j, mark);
    }
    return true;
}

static bool read_head(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    int64_t tp;
    if (!json_is_object(root) || !read_format(j, root))
        return json_is_object(root) ? false : lathe_json_fail(j, "allowed: an object");
    if (!refuse_only(j, root))
        return false;
    if (!lathe_json_object(
            j, root,
            "format layout deployment tp arch hash checkpoint? ceilings? serves? limits "
            "groups buffers weights "
            "mailboxes kernels prepare probe? layers variants") ||
        !lathe_json_name(j, root, "layout", LATHE_NAME_FOLDER, &t->layout) ||
        !lathe_json_name(j, root, "deployment", LATHE_NAME_TEXT, &t->deployment) ||
        !lathe_json_int(j, root, "tp", 1, LARGEST_TP, &tp) ||
        !lathe_json_name(j, root, "arch", LATHE_NAME_FOLDER, &t->arch) ||
        !lathe_json_name(j, root, "hash", LATHE_NAME_FOLDER, &t->hash))
        return false;
    t->tp = (int)tp;
    if (strcmp(t->arch, "host") != 0 && !lathe_gpu_find(t->arch))
        return lathe_json_fail_at(j, "arch", "found %s, allowed: " LATHE_GPU_NAMES ", host",
                                  t->arch);
    return true;
}

static bool read_root(lathe_step_reader *r, const json_t *root) {
    return read_head(r, root) && read_ceilings(&r->json, root, &r->table->ceilings) &&
           read_limits(&r->json, root, r->table) && read_groups(r, root) &&
           read_layer_kinds(r, root) && read_buffers(r, root) && lathe_step_read_weights(r, root) &&
           lathe_step_read_checkpoint(r, root) && read_mailboxes(r, root) &&
           lathe_step_read_kernels(r, root) && lathe_step_read_prepare(r, root) &&
           lathe_step_read_probe(r, root) && lathe_step_read_variants(r, root);
}

static lathe_status parse_root(lathe_step_reader *r, const char *text, size_t length) {
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        snprintf(r->json.message, r->json.size, "%s:%d: not JSON (truncated or damaged): %s",
                 r->json.file, error.line, error.text);
        return LATHE_INVALID;
    }
    if (!read_root(r, root) && r->json.status == LATHE_OK)
        r->json.status = LATHE_INVALID;
    json_decref(root);
    return r->json.status;
}

lathe_status lathe_step_table_parse(const char *text, size_t length, const char *name,
                                    lathe_step_table **table, char *message, size_t size) {
    *table = NULL;
    lathe_pool *pool = lathe_pool_create();
    owned_table *owned = pool ? lathe_pool_alloc(pool, 1, sizeof *owned) : NULL;
    if (!owned) {
        lathe_pool_destroy(pool);
        snprintf(message, size, "%s: no memory", name);
        return LATHE_NO_MEMORY;
    }
    lathe_step_reader reader = {
        .json = {.pool = pool, .file = name, .message = message, .size = size},
        .table = &owned->table,
    };
    const lathe_status status = parse_root(&reader, text, length);
    owned->pool = pool;
    owned->buffers = reader.buffers;
    owned->table.digest = XXH3_64bits(text, length);
    if (status != LATHE_OK)
        lathe_pool_destroy(pool);
    else
        *table = &owned->table;
    return status;
}

static char *read_file(const char *path, size_t *length, char *message, size_t size) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(message, size, "%s: %s", path, file ? "not a file" : strerror(errno));
        if (file)
            fclose(file);
        return NULL;
    }
    *length = (size_t)info.st_size;
    char *text = *length <= LARGEST_FILE ? malloc(*length + 1) : NULL;
    if (!text) {
        snprintf(message, size, "%s: found %zu bytes, allowed: at most %zu", path, *length,
                 LARGEST_FILE);
    } else if (fread(text, 1, *length, file) != *length) {
        snprintf(message, size, "%s: cannot be read: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

lathe_status lathe_step_table_read(const char *directory, lathe_step_table **table, char *message,
                                   size_t size) {
    char path[4096];
    size_t length = 0;
    *table = NULL;
    if (snprintf(path, sizeof path, "%s/step.json", directory) >= (int)sizeof path) {
        snprintf(message, size, "the path of the generated directory is too long");
        return LATHE_INVALID;
    }
    char *text = read_file(path, &length, message, size);
    if (!text)
        return LATHE_IO;
    const lathe_status status = lathe_step_table_parse(text, length, path, table, message, size);
    free(text);
    return status;
}

void lathe_step_table_destroy(lathe_step_table *table) {
    if (table)
        lathe_pool_destroy(((owned_table *)table)->pool);
}

int lathe_step_table_find_buffer(const lathe_step_table *table, const char *name) {
    return lathe_step_index_find(&((const owned_table *)table)->buffers, name);
}

int lathe_step_buffer_instance(const lathe_step_buffer *buffer, int layer) {
    if (!buffer->per_layer)
        return 0;
    int low = 0, high = buffer->layer_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (buffer->layers[middle] < layer)
            low = middle + 1;
        else
            high = middle;
    }
    return low < buffer->layer_count && buffer->layers[low] == layer ? low : -1;
}

static const lathe_step_constant *find_constant(const lathe_step_constant *list, int count,
                                                const char *name) {
    for (int i = 0; i < count; ++i)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

const lathe_step_constant *lathe_step_constant_find(const lathe_step_kernel *kernel,
                                                    const lathe_step_tactic *tactic,
                                                    const char *name) {
    const lathe_step_constant *found =
        tactic ? find_constant(tactic->constants, tactic->constant_count, name) : NULL;
    return found ? found : find_constant(kernel->constants, kernel->constant_count, name);
}
