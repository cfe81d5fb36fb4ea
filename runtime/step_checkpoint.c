/* SPDX-License-Identifier: Apache-2.0
 * Owns: what step.json says of a checkpoint beside its tensors. */
#include <stdlib.h>

#include "step_read.h"

/* Patterns, copied into the pool. */
static bool read_names(lathe_json *j, const json_t *object, const char *key, int *count,
                       const char *const **names) {
    const json_t *array;
    if (!lathe_json_array(j, object, key, 0, LATHE_STEP_MAX_LIST, &array, count))
        return false;
    const char **list = lathe_json_alloc(j, *count, sizeof *list);
    if (!list)
        return false;
    *names = list;
    const size_t mark = lathe_json_enter(j, key);
    for (int i = 0; i < *count; ++i) {
        const size_t inner = lathe_json_enter_index(j, (size_t)i);
        if (!lathe_json_name_value(j, json_array_get(array, (size_t)i), LATHE_NAME_WORD, &list[i]))
            return false;
        lathe_json_leave(j, inner);
    }
    lathe_json_leave(j, mark);
    return true;
}

static bool read_record(lathe_json *j, const char *name, const json_t *fields,
                        lathe_step_record *record) {
    json_t *key = json_string(name); /* checked like any name of a file */
    const bool good = key && lathe_json_name_value(j, key, LATHE_NAME_FOLDER, &record->name);
    json_decref(key);
    if (!good)
        return key ? false : lathe_json_fail_memory(j);
    if (!json_is_object(fields))
        return lathe_json_fail(j, "checkpoint: files: %.60s is no object", name);
    char *text = json_dumps(fields, JSON_COMPACT | JSON_SORT_KEYS);
    record->fields = text ? lathe_pool_string(j->pool, text) : NULL;
    free(text);
    return record->fields ? true : lathe_json_fail_memory(j);
}

static bool read_records(lathe_json *j, const json_t *files, lathe_step_checkpoint *c) {
    const char *name;
    json_t *fields;
    if (!files)
        return true;
    if (!json_is_object(files))
        return lathe_json_fail(j, "files: allowed: an object");
    lathe_step_record *records = lathe_json_alloc(j, (int)json_object_size(files), sizeof *records);
    if (!records)
        return false;
    c->records = records;
    /* json_object_foreach wants a pointer to what is not const, and changes nothing. */
    json_object_foreach((json_t *)(uintptr_t)files, name, fields) {
        if (!read_record(j, name, fields, &records[c->record_count++]))
            return false;
    }
    return true;
}

static bool read_served(lathe_json *j, const char *name, const json_t *value,
                        lathe_step_served *served) {
    const char *text = json_string_value(value);
    served->name = lathe_pool_string(j->pool, name);
    served->text = text ? lathe_pool_string(j->pool, text) : NULL;
    served->number = json_number_value(value);
    if (!served->name || (text && !served->text))
        return lathe_json_fail_memory(j);
    return text || json_is_number(value) ||
           lathe_json_fail_at(j, name, "allowed: a number or a word");
}

/* Its own list: what the layout says of the model in words that every model shares. */
static bool read_serves(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    json_t *object = json_object_get(root, "serves");
    const char *name;
    json_t *value;
    if (!object)
        return true;
    const size_t mark = lathe_json_enter(j, "serves");
    if (!json_is_object(object))
        return lathe_json_fail(j, "allowed: an object");
    lathe_step_served *list = lathe_json_alloc(j, (int)json_object_size(object), sizeof *list);
    if (!list)
        return false;
    r->table->served = list;
    json_object_foreach(object, name, value) {
        if (!read_served(j, name, value, &list[r->table->served_count++]))
            return false;
    }
    lathe_json_leave(j, mark);
    return true;
}

bool lathe_step_read_checkpoint(lathe_step_reader *r, const json_t *root) {
    lathe_json *j = &r->json;
    lathe_step_checkpoint *c = &r->table->checkpoint;
    const json_t *object = json_object_get(root, "checkpoint");
    if (!read_serves(r, root))
        return false;
    if (!object)
        return true;
    c->known = true;
    const size_t mark = lathe_json_enter(j, "checkpoint");
    if (!lathe_json_object(j, object, "files? names? unread?") ||
        !read_names(j, object, "names", &c->name_count, &c->names) ||
        !read_names(j, object, "unread", &c->unread_count, &c->unread) ||
        !read_records(j, json_object_get(object, "files"), c))
        return false;
    lathe_json_leave(j, mark);
    return true;
}
