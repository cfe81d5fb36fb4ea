/* SPDX-License-Identifier: Apache-2.0
 * A reader of literal Lua tables, and the other way. */
#include "tactic_file.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 16
#define WIDTH 128 /* columns of a line */

typedef struct {
    const char *name, *text, *at;
    lathe_message_buffer message;
    bool failed;
} reader;

/* ---- words ---- */

static int line_of(const reader *r, const char *at) {
    int line = 1;
    for (const char *c = r->text; c < at; ++c)
        line += *c == '\n';
    return line;
}

/* The first failure stays. */
static bool refuse(reader *r, const char *allowed) {
    char found[24] = "the end";
    if (*r->at)
        snprintf(found, sizeof found, "'%.*s'",
                 (int)strcspn(r->at, " \t\n") > 16 ? 16 : (int)strcspn(r->at, " \t\n"), r->at);
    if (!r->failed)
        snprintf(r->message.text, r->message.size, "%s:%d: found %s, allowed: %s", r->name,
                 line_of(r, r->at), found, allowed);
    r->failed = true;
    return false;
}

static void skip(reader *r) {
    for (;;) {
        r->at += strspn(r->at, " \t\r\n");
        if (strncmp(r->at, "--", 2) != 0 || strncmp(r->at, "--[", 3) == 0)
            return;
        r->at += strcspn(r->at, "\n");
    }
}

static bool take(reader *r, char c) {
    skip(r);
    if (*r->at != c)
        return false;
    ++r->at;
    return true;
}

static bool expect(reader *r, char c) {
    const char allowed[] = {'\'', c, '\'', '\0'};
    return take(r, c) || refuse(r, allowed);
}

static size_t word_length(const char *at) {
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_')
        ++n;
    return isdigit((unsigned char)*at) ? 0 : n;
}

static bool take_word(reader *r, const char *word) {
    skip(r);
    const size_t n = word_length(r->at);
    if (n != strlen(word) || strncmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* ---- values ---- */

static json_t *read_string(reader *r) {
    skip(r);
    const size_t n = *r->at == '"' ? strcspn(r->at + 1, "\"\\\n") : 0;
    if (*r->at != '"' || r->at[1 + n] != '"') {
        refuse(r, "a string without escapes");
        return NULL;
    }
    json_t *text = json_stringn(r->at + 1, n);
    r->at += n + 2;
    if (!text)
        refuse(r, "UTF-8");
    return text;
}

static json_t *read_number(reader *r) {
    char *end;
    const double real = strtod(r->at, &end);
    const size_t n = (size_t)(end - r->at);
    if (n == 0 || !isfinite(real) || word_length(end) > 0) {
        refuse(r, "a number, a string or a table");
        return NULL;
    }
    const bool whole = memchr(r->at, '.', n) == NULL && memchr(r->at, 'e', n) == NULL;
    r->at = end;
    return whole && fabs(real) < 9e15 ? json_integer((json_int_t)real) : json_real(real);
}

static json_t *read_value(reader *r, int depth);

/* `NAME = value` into an object, `value` into an array: a table is one or the other. */
static bool read_item(reader *r, json_t **table, int depth) {
    skip(r);
    const size_t n = word_length(r->at);
    char name[64] = "";
    if (n >= sizeof name)
        return refuse(r, "a shorter name");
    memcpy(name, r->at, n);
    r->at += n;
    if (n > 0 && !expect(r, '='))
        return false;
    json_t *value = read_value(r, depth + 1);
    if (!value)
        return false;
    if (!*table)
        *table = n > 0 ? json_object() : json_array();
    if (json_is_object(*table) != (n > 0)) {
        json_decref(value);
        return refuse(r, "names before all values of a table, or before none");
    }
    return (n > 0 ? json_object_set_new(*table, name, value)
                  : json_array_append_new(*table, value)) == 0 ||
           refuse(r, "less");
}

static json_t *read_table(reader *r, int depth) {
    json_t *table = NULL;
    if (depth > DEPTH) {
        refuse(r, "fewer tables within tables");
        return NULL;
    }
    expect(r, '{');
    while (!r->failed && !take(r, '}')) {
        if (read_item(r, &table, depth) && !take(r, ',') && !take(r, ';')) {
            expect(r, '}');
            break;
        }
    }
    if (!r->failed && !table)
        table = json_array();
    if (!r->failed)
        return table;
    json_decref(table);
    return NULL;
}

static json_t *read_value(reader *r, int depth) {
    skip(r);
    return *r->at == '{' ? read_table(r, depth) : *r->at == '"' ? read_string(r) : read_number(r);
}

/* ---- the file ---- */

static bool add_entry(reader *r, lathe_tactic_file *file, const char *begin) {
    lathe_tactic_file_entry *grown =
        realloc(file->entries, (size_t)(file->count + 1) * sizeof *grown);
    if (!grown)
        return refuse(r, "less");
    file->entries = grown;
    lathe_tactic_file_entry *e = &grown[file->count];
    *e = (lathe_tactic_file_entry){.line = line_of(r, begin), .begin = (size_t)(begin - r->text)};
    json_t *name = read_string(r);
    e->fields = name ? read_table(r, 0) : NULL;
    e->end = (size_t)(r->at - r->text);
    if (e->fields) {
        e->provider = strdup(json_string_value(name));
        ++file->count;
        if (!json_is_object(json_object_get(e->fields, "shape")) ||
            !json_is_integer(json_object_get(e->fields, "rows")) ||
            !json_is_array(json_object_get(e->fields, "choose"))) {
            r->at = begin;
            refuse(r, "a tactic with shape, rows and choose");
        }
    }
    json_decref(name);
    return !r->failed;
}

static bool read_field(reader *r, lathe_tactic_file *file) {
    skip(r);
    const char *begin = r->at;
    if (take_word(r, "tactic"))
        return add_entry(r, file, begin);
    const bool is_arch = take_word(r, "arch");
    if (!is_arch && !take_word(r, "doc") && !take_word(r, "ceilings"))
        return refuse(r, "arch, doc, ceilings or tactic");
    json_t *value = expect(r, '=') ? read_value(r, 0) : NULL;
    if (is_arch && json_is_string(value))
        snprintf(file->arch, sizeof file->arch, "%s", json_string_value(value));
    json_decref(value);
    return value != NULL;
}

static bool read_file(reader *r, lathe_tactic_file *file) {
    if (!take_word(r, "return") || !take_word(r, "tactics"))
        return refuse(r, "return tactics \"NAME\" {...}");
    json_t *name = read_string(r);
    json_decref(name);
    if (!name || !expect(r, '{'))
        return false;
    file->comma = true;
    for (;;) {
        skip(r);
        file->close = (size_t)(r->at - r->text);
        if (take(r, '}'))
            break;
        if (!file->comma)
            return expect(r, ',');
        if (!read_field(r, file))
            return false;
        file->comma = take(r, ',') || take(r, ';');
    }
    skip(r);
    return !*r->at || refuse(r, "nothing more");
}

lathe_status lathe_tactic_file_parse(const char *name, const char *text, lathe_tactic_file *file,
                                     lathe_message_buffer message) {
    reader r = {.name = name, .text = text, .at = text, .message = message};
    *file = (lathe_tactic_file){0};
    if (read_file(&r, file))
        return LATHE_OK;
    lathe_tactic_file_free(file);
    return LATHE_INVALID;
}

void lathe_tactic_file_free(lathe_tactic_file *file) {
    for (int i = 0; i < file->count; ++i) {
        free((char *)(uintptr_t)file->entries[i].provider);
        json_decref(file->entries[i].fields);
    }
    free(file->entries);
    *file = (lathe_tactic_file){0};
}

static bool fits(const json_t *shape, const json_t *constants) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)shape, key, value) {
        const json_t *has = json_object_get(constants, key);
        if (!has || json_number_value(has) != json_number_value(value))
            return false;
    }
    return true;
}

const lathe_tactic_file_entry *lathe_tactic_file_find(const lathe_tactic_file *file,
                                                      const char *provider, int64_t rows,
                                                      const json_t *constants) {
    for (int i = 0; i < file->count; ++i) {
        const lathe_tactic_file_entry *e = &file->entries[i];
        if (strcmp(e->provider, provider) == 0 &&
            json_integer_value(json_object_get(e->fields, "rows")) == rows &&
            fits(json_object_get(e->fields, "shape"), constants))
            return e;
    }
    return NULL;
}

/* ---- printing ---- */

typedef struct {
    FILE *out;
    int column;
} printer;

static void put(printer *p, const char *text) {
    fputs(text, p->out);
    const char *line = strrchr(text, '\n');
    p->column = line ? (int)strlen(line + 1) : p->column + (int)strlen(text);
}

static void print_scalar(const json_t *v, char *text, size_t size) {
    if (json_is_string(v))
        snprintf(text, size, "\"%s\"", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(text, size, "%lld", (long long)json_integer_value(v));
    else
        snprintf(text, size, "%.10g%s", json_real_value(v),
                 json_real_value(v) == floor(json_real_value(v)) ? ".0" : "");
}

/* "{ kA = 1, kB = 2 }", broken before what would not fit, further lines at `indent`. `open` and
 * `close`: what stands around. */
static void print_names(printer *p, const json_t *object, int indent, const char *open,
                        const char *close) {
    const char *key;
    json_t *value;
    bool first = true;
    put(p, open);
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char scalar[256], item[512], line[64];
        print_scalar(value, scalar, sizeof scalar);
        snprintf(item, sizeof item, "%s = %s", key, scalar);
        snprintf(line, sizeof line, ",\n%*s", indent, "");
        if (!first)
            put(p, p->column + 2 + (int)strlen(item) + 3 > WIDTH ? line : ", ");
        put(p, item);
        first = false;
    }
    put(p, close);
}

static void print_choices(printer *p, const json_t *list) {
    size_t i;
    json_t *choice;
    put(p, "        choose = {");
    json_array_foreach(list, i, choice) print_names(p, choice, 21, i ? ", { " : " { ", " }");
    put(p, " },\n");
}

static void print_record(printer *p, const json_t *record) {
    json_t *plain = json_object();
    const json_t *losers = json_object_get(record, "losers");
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)record, key, value) {
        if (!json_is_array(value) && !json_is_object(value))
            json_object_set(plain, key, value);
    }
    put(p, "        record = {\n");
    print_names(p, plain, 12, "            ", ",\n");
    json_decref(plain);
    put(p, json_array_size(losers) ? "            losers = {\n" : "            losers = {},\n");
    json_array_foreach(losers, i, value) print_names(p, value, 18, "                { ", " },\n");
    put(p, json_array_size(losers) ? "            },\n        },\n" : "        },\n");
}

char *lathe_tactic_file_print(const char *provider, const json_t *fields) {
    char *text = NULL;
    size_t bytes = 0;
    printer p = {.out = open_memstream(&text, &bytes)};
    if (!p.out)
        return NULL;
    char rows[64];
    snprintf(rows, sizeof rows, " }, rows = %lld,\n",
             (long long)json_integer_value(json_object_get(fields, "rows")));
    put(&p, "tactic \"");
    put(&p, provider);
    put(&p, "\" {\n");
    print_names(&p, json_object_get(fields, "shape"), 18, "        shape = { ", rows);
    print_choices(&p, json_object_get(fields, "choose"));
    print_record(&p, json_object_get(fields, "record"));
    put(&p, "    }");
    if (fclose(p.out) == 0)
        return text;
    free(text);
    return NULL;
}

char *lathe_tactic_file_put(const char *text, const lathe_tactic_file *file,
                            const lathe_tactic_file_entry *old, const char *entry) {
    char *result;
    const size_t begin = old ? old->begin : file->close, end = old ? old->end : file->close;
    /* The last field may end on the line of the brace. */
    const char *before = old ? "" : file->comma ? "    " : ",\n    ";
    size_t keep = begin;
    if (!old && !file->comma)
        while (keep > 0 && isspace((unsigned char)text[keep - 1]))
            --keep;
    return asprintf(&result, "%.*s%s%s%s%s", (int)keep, text, before, entry, old ? "" : ",\n",
                    text + end) < 0
               ? NULL
               : result;
}
