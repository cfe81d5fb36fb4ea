/* SPDX-License-Identifier: Apache-2.0
 * Parses token ids; every message names the line. */
#include "token_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

#define FILE_LIMIT ((size_t)1 << 28)
#define SPACES " \t\r\n"
#define SEPARATORS "," SPACES

static bool append(lathe_token_list *list, int32_t token) {
    if ((list->count & (list->count - 1)) == 0) { /* grows at 0, 1, 2, 4, ... */
        const size_t room = list->count ? 2 * (size_t)list->count : 1;
        int32_t *more = realloc(list->tokens, room * sizeof *more);
        if (!more)
            return false;
        list->tokens = more;
    }
    list->tokens[list->count++] = token;
    return true;
}

static int count_lines(const char *text, const char *end) {
    int line = 1;
    for (const char *p = text; p < end; ++p)
        line += *p == '\n';
    return line;
}

/* Behind a token: spaces, and at most one comma, behind which another token must stand. */
static const char *skip_separator(const char *p, bool *comma) {
    p += strspn(p, SPACES);
    *comma = *p == ',';
    return *comma ? p + 1 + strspn(p + 1, SPACES) : p;
}

static lathe_status refuse_token(const char *text, const char *p, size_t length, const char *what,
                                 char *message, size_t size) {
    char found[48] = "the end";
    if (*p)
        snprintf(found, sizeof found, "'%.*s'",
                 length == 0   ? 1
                 : length < 40 ? (int)length
                               : 40,
                 p);
    snprintf(message, size, "%s:%d: found %s, allowed: token ids with one comma or spaces between",
             what, count_lines(text, p), found);
    return LATHE_INVALID;
}

lathe_status lathe_token_list_parse(const char *text, const char *what, lathe_token_list *list,
                                    char *message, size_t size) {
    *list = (lathe_token_list){NULL, 0};
    bool comma = false;
    for (const char *p = text + strspn(text, SPACES); *p || comma;) {
        const size_t length = strcspn(p, SEPARATORS);
        char *end;
        errno = 0;
        const long token = strtol(p, &end, 10);
        if (errno != 0 || length == 0 || end != p + length || token < INT32_MIN ||
            token > INT32_MAX)
            return refuse_token(text, p, length, what, message, size);
        if (!append(list, (int32_t)token)) {
            snprintf(message, size, "%s: no memory", what);
            return LATHE_NO_MEMORY;
        }
        p = skip_separator(p + length, &comma);
    }
    return LATHE_OK;
}

lathe_status lathe_token_list_read(const char *path, lathe_token_list *list, char *message,
                                   size_t size) {
    char *text;
    size_t length;
    const int error = lathe_file_read(path, FILE_LIMIT, &text, &length);
    *list = (lathe_token_list){NULL, 0};
    if (error) {
        snprintf(message, size, "%s: %s", path, strerror(error));
        return LATHE_IO;
    }
    lathe_status status = LATHE_INVALID;
    if (strlen(text) == length)
        status = lathe_token_list_parse(text, path, list, message, size);
    else
        snprintf(message, size, "%s:%d: found a byte of 0, allowed: text", path,
                 count_lines(text, text + strlen(text)));
    free(text);
    return status;
}

void lathe_token_list_free(lathe_token_list *list) {
    free(list->tokens);
    *list = (lathe_token_list){NULL, 0};
}
