/* SPDX-License-Identifier: Apache-2.0
 * Owns: the kernels of step.json: arguments, constants, tactics. */
#include <string.h>

#include "step_read.h"

#define MOST_ARGS 64
#define MOST_TACTICS 256
#define MOST_CONSTANTS 512

static bool read_constants(lathe_json *j, const json_t *object,
                           const lathe_step_constant **constants, int *count) {
    const json_t *map = json_object_get(object, "constants");
    char found[64];
    *count = 0;
    if (!map)
        return true;
    if (!json_is_object(map) || json_object_size(map) > MOST_CONSTANTS)
        return lathe_json_fail_at(j, "constants", "found %s, allowed: an object of numbers",
                                  lathe_json_show(map, found));
    lathe_step_constant *list = lathe_json_alloc(j, (int)json_object_size(map), sizeof *list);
    if (!list)
        return false;
    const size_t mark = lathe_json_enter(j, "constants");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value) {
        if (!json_is_number(value))
            return lathe_json_fail_at(j, key, "found %s, allowed: a number",
                                      lathe_json_show(value, found));
        lathe_step_constant *c = &list[(*count)++];
        c->name = lathe_pool_string(j->pool, key);
        c->is_real = json_is_real(value);
        c->integer = json_is_integer(value) ? json_integer_value(value) : 0;
        c->real = json_number_value(value);
        if (!c->name)
            return lathe_json_fail_memory(j);
    }
    lathe_json_leave(j, mark);
    *constants = list;
    return true;
}

/* What a mailbox carries from a publisher to a receiver: parts of a sum or columns. */
static bool read_carried(lathe_json *j, const json_t *value, lathe_step_arg *a) {
    a->carries = json_object_get(value, "publishes") != NULL;
    if (!a->carries)
        return true;
    if (a->form != LATHE_FORM_RANK_PARTIALS && a->form != LATHE_FORM_COLUMNS)
        return lathe_json_fail_at(j, "form", "found %s, allowed: rank_partials columns",
                                  lathe_step_form_name(a->form));
    return lathe_json_bool(j, value, "publishes", &a->publishes);
}

/* A mailbox argument points at a struct: unless it carries a value it has neither a scalar type nor
 * a shape. */
static bool read_arg(lathe_json *j, const json_t *value, lathe_step_arg *a) {
    int dir = -1;
    if (!lathe_json_object(j, value, "name dtype? shape? dir form? publishes? ahead?") ||
        !lathe_json_name(j, value, "name", LATHE_NAME_IDENTIFIER, &a->name) ||
        !lathe_json_choice(j, value, "dir", "in out inout workspace mailbox", &dir) ||
        !lathe_step_read_form(j, value, &a->form))
        return false;
    a->dir = (lathe_step_dir)dir;
    if (!lathe_json_bool(j, value, "ahead", &a->ahead))
        return false;
    if (a->ahead && a->dir != LATHE_DIR_OUT)
        return lathe_json_fail_at(j, "ahead", "allowed: with dir \"out\"");
    a->dtype = LATHE_SCALAR_MAILBOX;
    if (a->dir != LATHE_DIR_MAILBOX && json_object_get(value, "publishes"))
        return lathe_json_fail_at(j, "publishes", "allowed: with dir \"mailbox\"");
    if (a->dir == LATHE_DIR_MAILBOX && !read_carried(j, value, a))
        return false;
    if (a->dir == LATHE_DIR_MAILBOX && !a->carries)
        return true;
    int64_t bytes;
    return lathe_step_read_scalar(j, value, &a->dtype) &&
           lathe_step_read_shape(j, value, 0, false, &a->shape) &&
           lathe_step_shape_bytes(j, &a->shape, 0, a->dtype, &bytes);
}

static bool read_args(lathe_json *j, const json_t *object, lathe_step_kernel *k) {
    const json_t *array;
    lathe_step_index names;
    if (!lathe_json_array(j, object, "args", 0, MOST_ARGS, &array, &k->arg_count) ||
        !lathe_step_index_create(j, k->arg_count, &names))
        return false;
    lathe_step_arg *args = lathe_json_alloc(j, k->arg_count, sizeof *args);
    if (!args)
        return false;
    k->args = args;
    const size_t mark = lathe_json_enter(j, "args");
    for (int i = 0; i < k->arg_count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!read_arg(j, json_array_get(array, (size_t)i), &args[i]) ||
            !lathe_step_index_add(j, &names, args[i].name, i))
            return false;
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_grid(lathe_json *j, const json_t *object, uint32_t grid[3]) {
    static const int64_t most[3] = {INT32_MAX, 65535, 65535};
    const json_t *array;
    int count;
    if (!lathe_json_array(j, object, "grid", 3, 3, &array, &count))
        return false;
    const size_t mark = lathe_json_enter(j, "grid");
    for (int i = 0; i < 3; ++i) {
        int64_t size;
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!lathe_json_int_value(j, json_array_get(array, (size_t)i), 1, most[i], &size))
            return false;
        lathe_json_leave(j, inner);
        grid[i] = (uint32_t)size;
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_tactic(lathe_json *j, const json_t *value, lathe_step_tactic *t) {
    int64_t block, shared, registers, cluster = 1;
    if (!lathe_json_object(j, value,
                           "name file entry grid block shared registers cluster? cooperative? "
                           "constants?") ||
        !lathe_json_name(j, value, "name", LATHE_NAME_TEXT, &t->name) ||
        !lathe_json_name(j, value, "file", LATHE_NAME_FILE, &t->file) ||
        !lathe_json_name(j, value, "entry", LATHE_NAME_IDENTIFIER, &t->entry) ||
        !read_grid(j, value, t->grid) || !lathe_json_int(j, value, "block", 1, 1024, &block) ||
        !lathe_json_int(j, value, "shared", 0, 1 << 20, &shared) ||
        !lathe_json_int(j, value, "registers", 0, 255, &registers) ||
        (json_object_get(value, "cluster") &&
         !lathe_json_int(j, value, "cluster", 1, 8, &cluster)) ||
        !lathe_json_bool(j, value, "cooperative", &t->cooperative) ||
        !read_constants(j, value, &t->constants, &t->constant_count))
        return false;
    t->block = (uint32_t)block;
    t->shared_bytes = (uint32_t)shared;
    t->registers = (uint32_t)registers;
    t->cluster = (uint32_t)cluster;
    if (t->grid[0] % t->cluster)
        return lathe_json_fail_at(j, "cluster", "found %u, which does not divide the grid's %u",
                                  t->cluster, t->grid[0]);
    if (t->cluster > 1 && t->cooperative)
        return lathe_json_fail_at(j, "cluster", "found %u on a cooperative kernel", t->cluster);
    return true;
}

static bool read_tactics(lathe_json *j, const json_t *object, lathe_step_kernel *k) {
    const json_t *array;
    if (!lathe_json_array(j, object, "tactics", 1, MOST_TACTICS, &array, &k->tactic_count))
        return false;
    lathe_step_tactic *tactics = lathe_json_alloc(j, k->tactic_count, sizeof *tactics);
    if (!tactics)
        return false;
    k->tactics = tactics;
    const size_t mark = lathe_json_enter(j, "tactics");
    for (int i = 0; i < k->tactic_count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!read_tactic(j, json_array_get(array, (size_t)i), &tactics[i]))
            return false;
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_parts(lathe_json *j, const json_t *object, lathe_step_kernel *k) {
    const json_t *array;
    if (!lathe_json_array(j, object, "parts", 0, 64, &array, &k->part_count))
        return false;
    const char **parts = lathe_json_alloc(j, k->part_count, sizeof *parts);
    if (!parts)
        return false;
    const size_t mark = lathe_json_enter(j, "parts");
    for (int i = 0; i < k->part_count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!lathe_json_name_value(j, json_array_get(array, (size_t)i), LATHE_NAME_WORD, &parts[i]))
            return false;
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    k->parts = parts;
    return true;
}

/* Any text: it is shown, nothing else. */
static bool read_spills(lathe_json *j, const json_t *value, lathe_step_kernel *k) {
    const json_t *why = json_object_get(value, "spills");
    if (!why)
        return true;
    if (!json_is_string(why) || json_string_length(why) == 0 || json_string_length(why) > 120)
        return lathe_json_fail_at(j, "spills", "allowed: why it may spill registers, in 120 bytes");
    return (k->spills = lathe_pool_string(j->pool, json_string_value(why))) != NULL ||
           lathe_json_fail_memory(j);
}

static bool read_kernel(lathe_json *j, const json_t *value, lathe_step_kernel *k) {
    return lathe_json_object(j, value,
                             "name provider parts constants args bytes operations early triggers "
                             "tactics spills?") &&
           lathe_json_name(j, value, "name", LATHE_NAME_FOLDER, &k->name) &&
           lathe_json_name(j, value, "provider", LATHE_NAME_FILE, &k->provider) &&
           read_parts(j, value, k) && read_constants(j, value, &k->constants, &k->constant_count) &&
           read_args(j, value, k) && lathe_json_int(j, value, "bytes", 0, INT64_MAX, &k->bytes) &&
           lathe_json_int(j, value, "operations", 0, INT64_MAX, &k->operations) &&
           lathe_json_bool(j, value, "early", &k->early) &&
           lathe_json_bool(j, value, "triggers", &k->triggers) && read_spills(j, value, k) &&
           read_tactics(j, value, k);
}

bool lathe_step_read_kernels(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_table *t = r->table;
    const json_t *array;
    if (!lathe_json_array(j, root, "kernels", 0, LATHE_STEP_MAX_LIST, &array, &t->kernel_count) ||
        !lathe_step_index_create(j, t->kernel_count, &r->kernels))
        return false;
    lathe_step_kernel *kernels = lathe_json_alloc(j, t->kernel_count, sizeof *kernels);
    if (!kernels)
        return false;
    t->kernels = kernels;
    for (int i = 0; i < t->kernel_count; ++i) {
        const size_t mark = lathe_json_enter(j, "kernels");
        lathe_json_enter_index(j, (size_t)i);
        if (!read_kernel(j, json_array_get(array, (size_t)i), &kernels[i]) ||
            !lathe_step_index_add(j, &r->kernels, kernels[i].name, i))
            return false;
        lathe_json_leave(j, mark);
    }
    return true;
}
