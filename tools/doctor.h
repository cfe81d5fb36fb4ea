/* SPDX-License-Identifier: Apache-2.0
 * What `lathe doctor` reports: one line a fact, with a verdict and, where something is to be done,
 * what. */
#ifndef LATHE_DOCTOR_H
#define LATHE_DOCTOR_H

#include <stdio.h>

#include "lathe.h"

typedef enum {
    LATHE_DOCTOR_OK,
    LATHE_DOCTOR_ABSENT, /* not there; what it serves cannot be done here */
    LATHE_DOCTOR_BROKEN  /* there, but it does not do what it should */
} lathe_verdict;

typedef struct {
    FILE *out;
    int broken;      /* lines with that verdict */
    bool compiles;   /* NVRTC is there */
    int nvrtc_major; /* 0: none */
    bool host;       /* the host device can compile kernels */
    int gpus;        /* that can run the kernels built here */
} lathe_doctor;

/* "SUBJECT  verdict  fact" and, where `advice` is not NULL, a line with it below. */
void lathe_doctor_say(lathe_doctor *d, lathe_verdict verdict, const char *subject,
                      const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The parts of the examination; NULL where the usual place is meant. GPUs come after NVRTC. */
void lathe_doctor_nvrtc(lathe_doctor *d, const char *where);
void lathe_doctor_driver(lathe_doctor *d);
void lathe_doctor_nccl(lathe_doctor *d);
void lathe_doctor_host(lathe_doctor *d);
void lathe_doctor_gpus(lathe_doctor *d, const char *nvrtc);
void lathe_doctor_cache(lathe_doctor *d, const char *folder);

#endif
