/* SPDX-License-Identifier: Apache-2.0
 * Owns: the log callback with its lock, and messages of bounded length. */
#ifndef LATHE_LOG_H
#define LATHE_LOG_H

#include <pthread.h>

#include "lathe.h"

typedef struct {
    lathe_log callback; /* or NULL */
    void *context;
    pthread_mutex_t lock; /* one line at a time, from whichever thread */
} lathe_logger;

void lathe_logger_create(lathe_logger *logger, lathe_log callback, void *context);
void lathe_logger_destroy(lathe_logger *logger);

/* `logger` may be NULL. */
void lathe_logger_write(lathe_logger *logger, lathe_log_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void lathe_logger_progress(lathe_logger *logger, int done, int total, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Where a failure is described. */
typedef struct {
    char *text;
    size_t size;
} lathe_message_buffer;

/* Writes the message and returns the status, so that a failure is one statement. */
lathe_status lathe_fail(lathe_message_buffer message, lathe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
