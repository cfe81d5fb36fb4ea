/* SPDX-License-Identifier: Apache-2.0
 * Lathe's public interface: build a generated directory on a device and run its step.
 *
 * Every call returns a lathe_status and must be checked; the message of the last failure lives in the object.
 * Nothing prints, exits or aborts. Option structs begin with their size. Out-parameters are NULL on failure. */
#ifndef LATHE_H
#define LATHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LATHE_CHECKED __attribute__((warn_unused_result))
#else
#define LATHE_CHECKED
#endif

typedef enum {
    LATHE_OK = 0,
    LATHE_INVALID = 1,     /* bad argument, bad input file, call out of order */
    LATHE_UNSUPPORTED = 2, /* well-formed, but this deployment or machine cannot serve it; the reason is in the message */
    LATHE_NO_MEMORY = 3,
    LATHE_NO_DEVICE = 4,    /* driver, NVRTC, compiler or GPU missing or too old */
    LATHE_COMPILE = 5,      /* a generated kernel does not compile; the log names template and line */
    LATHE_IO = 6,           /* a file cannot be read or written */
    LATHE_DEVICE_FAULT = 7, /* the device reported an error */
    LATHE_PEER_LOST = 8,    /* a bounded wait on another rank ended */
    LATHE_DISAGREE = 9      /* the ranks do not hold the same step */
} lathe_status;

/* Name of a status, for messages. Never NULL. */
const char *lathe_status_name(lathe_status status);

#ifdef __cplusplus
}
#endif
#endif
