/* SPDX-License-Identifier: Apache-2.0
 * Parses token ids; every message names the line. */
#include "token_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

#define FILE_LIMIT ((size_t)1 << 28)
#define SEPARATORS ", \t\r\n"

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

lathe_status lathe_token_list_parse(const char *text, const char *what, lathe_token_list *list,
                                    char *message, size_t size) {
    *list = (lathe_token_list){NULL, 0};
    for (const char *p = text + strspn(text, SEPARATORS); *p; p += strspn(p, SEPARATORS)) {
        const size_t length = strcspn(p, SEPARATORS);
        char *end;
        errno = 0;
        const long token = strtol(p, &end, 10);
        if (errno != 0 || end != p + length || token < INT32_MIN || token > INT32_MAX) {
            snprintf(message, size,
                     "%s:%d: found '%.*s', allowed: token ids with commas or spaces between", what,
                     count_lines(text, p), (int)(length < 40 ? length : 40), p);
            return LATHE_INVALID;
        }
        if (!append(list, (int32_t)token)) {
            snprintf(message, size, "%s: no memory", what);
            return LATHE_NO_MEMORY;
        }
        p += length;
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
    const lathe_status status = lathe_token_list_parse(text, path, list, message, size);
    free(text);
    return status;
}

void lathe_token_list_free(lathe_token_list *list) {
    free(list->tokens);
    *list = (lathe_token_list){NULL, 0};
}
