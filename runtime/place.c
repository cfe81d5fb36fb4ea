/* SPDX-License-Identifier: Apache-2.0
 * Owns: the machine's and the process's numbers. */
#include "place.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static lathe_place here;

static uint64_t number_of_machine(void) {
    char text[256] = "";
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, text, sizeof text) : 0;
    if (file >= 0)
        close(file);
    if (bytes <= 0) {
        (void)gethostname(text, sizeof text - 1);
        bytes = (ssize_t)strlen(text);
    }
    return XXH3_64bits(text, (size_t)bytes);
}

static void find(void) {
    here.machine = number_of_machine();
    if (getrandom(&here.process, sizeof here.process, 0) != (ssize_t)sizeof here.process)
        here.process = (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
}

lathe_place lathe_place_here(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return here;
}
