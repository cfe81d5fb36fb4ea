/* SPDX-License-Identifier: Apache-2.0
 * One source file out of a kernel's .cu and all that it includes. */
#include "inspect.h"

#include <string.h>

#include "sources.h"

#define MOST 256

typedef struct {
    const lathe_source *source;
    bool written[MOST]; /* headers, which all are guarded: once is enough */
    FILE *out;
} flat;

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* Whether the line is #include "NAME"; its header's number, or -1 where it is another's. */
static bool include_line(const flat *f, const char *line, size_t length, int *header) {
    char text[512], name[256], quote;
    size_t from = 0;
    while (from < length && is_blank(line[from]))
        ++from;
    if (length - from >= sizeof text || line[from] != '#')
        return false;
    memcpy(text, line + from, length - from);
    text[length - from] = '\0';
    if (sscanf(text, "# include \"%255[^\"]%c", name, &quote) != 2)
        return false;
    *header = -1;
    for (int h = 0; h < f->source->header_count; ++h)
        if (strcmp(f->source->headers[h].name, name) == 0)
            *header = h;
    return true;
}

static void write_text(flat *f, const char *name, const char *text) {
    int number = 1;
    fprintf(f->out, "#line 1 \"%s\"\n", name);
    for (const char *line = text; *line; ++number) {
        const size_t length = strcspn(line, "\n");
        int header;
        if (!include_line(f, line, length, &header)) {
            fprintf(f->out, "%.*s\n", (int)length, line);
        } else if (header >= 0 && !f->written[header]) {
            f->written[header] = true;
            write_text(f, f->source->headers[header].name, f->source->headers[header].text);
            fprintf(f->out, "#line %d \"%s\"\n", number + 1, name);
        } else {
            fputc('\n', f->out);
        }
        line += length + (line[length] == '\n');
    }
}

lathe_status lathe_inspect_flatten(const char *directory, const char *file, FILE *out,
                                   lathe_message_buffer message) {
    flat f = {.out = out};
    lathe_sources *sources;
    lathe_status status = lathe_sources_create(directory, "cuda", &sources, message);
    if (status == LATHE_OK)
        status = lathe_sources_read(sources, file, &f.source, message);
    if (status == LATHE_OK && f.source->header_count > MOST)
        status = lathe_fail(message, LATHE_INVALID, "%s: more than %d headers", file, MOST);
    if (status == LATHE_OK)
        write_text(&f, file, f.source->text);
    lathe_sources_destroy(sources);
    return status;
}
