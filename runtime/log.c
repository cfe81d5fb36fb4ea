/* SPDX-License-Identifier: Apache-2.0
 * Owns: formatting for the log callback and for messages. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>

#define LONGEST_LINE 2048

void lathe_logger_create(lathe_logger *logger, lathe_log callback, void *context) {
    logger->callback = callback;
    logger->context = context;
    pthread_mutex_init(&logger->lock, NULL);
}

void lathe_logger_destroy(lathe_logger *logger) {
    pthread_mutex_destroy(&logger->lock);
}

static void write_line(lathe_logger *logger, lathe_log_kind kind, int done, int total,
                       const char *format, va_list list) {
    char line[LONGEST_LINE];
    vsnprintf(line, sizeof line, format, list);
    pthread_mutex_lock(&logger->lock);
    logger->callback(logger->context, kind, line, done, total);
    pthread_mutex_unlock(&logger->lock);
}

void lathe_logger_write(lathe_logger *logger, lathe_log_kind kind, const char *format, ...) {
    if (!logger || !logger->callback)
        return;
    va_list list;
    va_start(list, format);
    write_line(logger, kind, 0, 0, format, list);
    va_end(list);
}

void lathe_logger_progress(lathe_logger *logger, int done, int total, const char *format, ...) {
    if (!logger || !logger->callback)
        return;
    va_list list;
    va_start(list, format);
    write_line(logger, LATHE_LOG_PROGRESS, done, total, format, list);
    va_end(list);
}

lathe_status lathe_fail(lathe_message_buffer message, lathe_status status, const char *format,
                        ...) {
    if (message.text && message.size) {
        va_list list;
        va_start(list, format);
        vsnprintf(message.text, message.size, format, list);
        va_end(list);
    }
    return status;
}
