/* SPDX-License-Identifier: Apache-2.0
 * Owns: checked reading of JSON values. */
#include "json_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_NAME 400u
#define SHOWN 64u

size_t lathe_json_enter(lathe_json *j, const char *key) {
    const size_t mark = j->path_length;
    const size_t room = sizeof j->path - mark;
    const int n = snprintf(j->path + mark, room, "%s%s", mark ? "." : "", key);
    if (n > 0 && (size_t)n < room)
        j->path_length += (size_t)n;
    return mark;
}

size_t lathe_json_enter_index(lathe_json *j, size_t index) {
    const size_t mark = j->path_length;
    const size_t room = sizeof j->path - mark;
    const int n = snprintf(j->path + mark, room, "[%zu]", index);
    if (n > 0 && (size_t)n < room)
        j->path_length += (size_t)n;
    return mark;
}

void lathe_json_leave(lathe_json *j, size_t mark) {
    j->path_length = mark;
    j->path[mark] = '\0';
}

static bool fail_list(lathe_json *j, const char *format, va_list list) {
    if (j->status != LATHE_OK)
        return false;
    j->status = LATHE_INVALID;
    const int n = snprintf(j->message, j->size, "%s: %s: ", j->file, j->path[0] ? j->path : "$");
    if (n >= 0 && (size_t)n < j->size)
        vsnprintf(j->message + n, j->size - (size_t)n, format, list);
    return false;
}

bool lathe_json_fail(lathe_json *j, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fail_list(j, format, list);
    va_end(list);
    return false;
}

bool lathe_json_fail_at(lathe_json *j, const char *key, const char *format, ...) {
    const size_t mark = lathe_json_enter(j, key);
    va_list list;
    va_start(list, format);
    fail_list(j, format, list);
    va_end(list);
    lathe_json_leave(j, mark);
    return false;
}

bool lathe_json_fail_memory(lathe_json *j) {
    lathe_json_fail(j, "no memory");
    j->status = LATHE_NO_MEMORY;
    return false;
}

void *lathe_json_alloc(lathe_json *j, int count, size_t bytes) {
    void *memory = lathe_pool_alloc(j->pool, (size_t)count, bytes);
    if (!memory)
        lathe_json_fail_memory(j);
    return memory;
}

const char *lathe_json_show(const json_t *value, char *text) {
    char *dump = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (!value)
        snprintf(text, SHOWN, "nothing");
    else if (!dump)
        snprintf(text, SHOWN, "a value");
    else if (strlen(dump) < 48)
        snprintf(text, SHOWN, "%s", dump);
    else
        snprintf(text, SHOWN, "%.44s...", dump);
    free(dump);
    return text;
}

/* The words of a list, one by one. Returns NULL at its end. */
static const char *next_word(const char **list, size_t *length) {
    const char *word = *list + strspn(*list, " ");
    *length = strcspn(word, " ");
    *list = word + *length;
    return *length ? word : NULL;
}

static bool known_key(const char *keys, const char *key) {
    size_t length;
    for (const char *word; (word = next_word(&keys, &length));) {
        const size_t bare = word[length - 1] == '?' ? length - 1 : length;
        if (strlen(key) == bare && strncmp(key, word, bare) == 0)
            return true;
    }
    return false;
}

bool lathe_json_object(lathe_json *j, const json_t *value, const char *keys) {
    char found[SHOWN];
    if (!json_is_object(value))
        return lathe_json_fail(j, "found %s, allowed: an object", lathe_json_show(value, found));
    const char *key;
    json_t *field;
    json_object_foreach((json_t *)(uintptr_t)value, key, field) {
        if (!known_key(keys, key))
            return lathe_json_fail(j, "unknown key \"%.60s\", allowed: %s", key, keys);
    }
    size_t length;
    for (const char *word, *rest = keys; (word = next_word(&rest, &length));) {
        if (word[length - 1] != '?' && !json_object_getn(value, word, length))
            return lathe_json_fail(j, "key \"%.*s\" is missing", (int)length, word);
    }
    return true;
}

bool lathe_json_int_value(lathe_json *j, const json_t *value, int64_t min, int64_t max,
                          int64_t *out) {
    char found[SHOWN];
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return lathe_json_fail(j, "found %s, allowed: an integer from %lld to %lld",
                               lathe_json_show(value, found), (long long)min, (long long)max);
    *out = json_integer_value(value);
    return true;
}

bool lathe_json_int(lathe_json *j, const json_t *object, const char *key, int64_t min, int64_t max,
                    int64_t *out) {
    const size_t mark = lathe_json_enter(j, key);
    const bool ok = lathe_json_int_value(j, json_object_get(object, key), min, max, out);
    lathe_json_leave(j, mark);
    return ok;
}

bool lathe_json_bool(lathe_json *j, const json_t *object, const char *key, bool *out) {
    const json_t *value = json_object_get(object, key);
    char found[SHOWN];
    if (!value)
        return true;
    if (!json_is_boolean(value))
        return lathe_json_fail_at(j, key, "found %s, allowed: true, false",
                                  lathe_json_show(value, found));
    *out = json_is_true(value);
    return true;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool char_allowed(char c, lathe_name_kind kind) {
    switch (kind) {
    case LATHE_NAME_TEXT:
        return (unsigned char)c >= 0x20 && c != 0x7f;
    case LATHE_NAME_WORD:
        return c > 0x20 && c < 0x7f;
    case LATHE_NAME_FOLDER:
        return is_letter(c) || is_digit(c) || strchr(".-", c);
    case LATHE_NAME_FILE:
        return is_letter(c) || is_digit(c) || strchr(".-/=,+", c);
    case LATHE_NAME_IDENTIFIER:
        return is_letter(c) || is_digit(c);
    }
    return false;
}

static bool name_allowed(const char *s, lathe_name_kind kind) {
    for (const char *c = s; *c; ++c)
        if (!char_allowed(*c, kind))
            return false;
    switch (kind) {
    case LATHE_NAME_TEXT:
        return strlen(s) <= LONGEST_NAME;
    case LATHE_NAME_WORD:
        return s[0] && strlen(s) <= LONGEST_NAME;
    case LATHE_NAME_FOLDER: /* leaves room for a hash within a file name */
        return s[0] && s[0] != '.' && strlen(s) <= 128;
    case LATHE_NAME_FILE:
        return s[0] && s[0] != '/' && !strstr(s, "..") && strlen(s) <= 200;
    case LATHE_NAME_IDENTIFIER:
        return is_letter(s[0]) && strlen(s) <= 250;
    }
    return false;
}

static const char *const name_kinds[] = {
    [LATHE_NAME_TEXT] = "printable text of at most 400 bytes",
    [LATHE_NAME_WORD] = "a name of 1 to 400 printable characters",
    [LATHE_NAME_FOLDER] = "a name of 1 to 128 letters, digits, _, . and -",
    [LATHE_NAME_FILE] = "a file below the directory, of letters, digits and _ . - / = , +",
    [LATHE_NAME_IDENTIFIER] = "a C identifier",
};

bool lathe_json_name_value(lathe_json *j, const json_t *value, lathe_name_kind kind,
                           const char **out) {
    char found[SHOWN];
    if (!json_is_string(value) || !name_allowed(json_string_value(value), kind))
        return lathe_json_fail(j, "found %s, allowed: %s", lathe_json_show(value, found),
                               name_kinds[kind]);
    *out = lathe_pool_string(j->pool, json_string_value(value));
    return *out || lathe_json_fail_memory(j);
}

bool lathe_json_name(lathe_json *j, const json_t *object, const char *key, lathe_name_kind kind,
                     const char **out) {
    const size_t mark = lathe_json_enter(j, key);
    const bool ok = lathe_json_name_value(j, json_object_get(object, key), kind, out);
    lathe_json_leave(j, mark);
    return ok;
}

bool lathe_json_choice(lathe_json *j, const json_t *object, const char *key, const char *names,
                       int *out) {
    const json_t *value = json_object_get(object, key);
    char found[SHOWN];
    if (!value)
        return true;
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    const char *rest = names;
    size_t length;
    int number = 0;
    for (const char *word; (word = next_word(&rest, &length)); ++number) {
        if (strlen(text) == length && strncmp(text, word, length) == 0) {
            *out = number;
            return true;
        }
    }
    return lathe_json_fail_at(j, key, "found %s, allowed: %s", lathe_json_show(value, found),
                              names);
}

bool lathe_json_array(lathe_json *j, const json_t *object, const char *key, size_t min, size_t max,
                      const json_t **array, int *count) {
    const json_t *value = json_object_get(object, key);
    char found[SHOWN];
    *array = value;
    *count = 0;
    if (!value && min == 0)
        return true;
    if (!json_is_array(value))
        return lathe_json_fail_at(j, key, "found %s, allowed: an array",
                                  lathe_json_show(value, found));
    const size_t size = json_array_size(value);
    if (size < min || size > max)
        return lathe_json_fail_at(j, key, "found %zu elements, allowed: %zu to %zu", size, min,
                                  max);
    *count = (int)size;
    return true;
}
