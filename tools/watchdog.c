/* SPDX-License-Identifier: Apache-2.0
 * A kernel that loops without calling a prim holds its thread for good: only ending the process
 * helps. Counts the processor time of the process, so that a loaded machine is no reason. */
#include "watchdog.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "host_crash.h"

#define LIMIT_SECONDS 60u /* between two prims of one thread; microseconds are usual */

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static bool started, stopping;
static uint64_t limit_ns;

static uint64_t used_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void look(void) {
    char text[512];
    if (!lathe_host_stuck(used_ns(), limit_ns, text, sizeof text))
        return;
    fprintf(stderr, "lathe run: %s: the kernel loops for ever (%u s of processor time)\n", text,
            LIMIT_SECONDS);
    _exit(LATHE_EXIT_DEVICE);
}

static void *watch(void *none) {
    (void)none;
    pthread_mutex_lock(&lock);
    while (!stopping) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&ended, &lock, &until);
        look();
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Without a thread to spare there is no watchdog. */
void lathe_watchdog_start(int ranks) {
    limit_ns = (uint64_t)(ranks < 1 ? 1 : ranks) * LIMIT_SECONDS * 1000000000u;
    stopping = false;
    started = pthread_create(&thread, NULL, watch, NULL) == 0;
}

void lathe_watchdog_stop(void) {
    if (!started)
        return;
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    started = false;
}
