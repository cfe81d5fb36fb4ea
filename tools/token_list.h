/* SPDX-License-Identifier: Apache-2.0
 * Token ids as text: numbers with white space, or one comma, between. */
#ifndef LATHE_TOKEN_LIST_H
#define LATHE_TOKEN_LIST_H

#include <stddef.h>

#include "lathe.h"

typedef struct {
    int32_t *tokens;
    int64_t count;
} lathe_token_list;

/* `what` stands for the text in messages. Negative numbers are tokens too here; free *list with
 * lathe_token_list_free, after a failure too. */
LATHE_CHECKED lathe_status lathe_token_list_parse(const char *text, const char *what,
                                                  lathe_token_list *list, char *message,
                                                  size_t size);
LATHE_CHECKED lathe_status lathe_token_list_read(const char *path, lathe_token_list *list,
                                                 char *message, size_t size);
void lathe_token_list_free(lathe_token_list *list);

#endif
