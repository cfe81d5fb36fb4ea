/* SPDX-License-Identifier: Apache-2.0
 * What of a kernel the emulator cannot stop: an access to memory that is not there, and a loop that
 * calls no prim. The first is named on stderr before it ends the process as it would have without
 * us; the second is told to whoever asks (lathe_host_stuck). */
#include "host_crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host_internal.h"

#define RUNS 64
#define SIGNAL_STACK_BYTES 65536

/* One emulator that runs, and since when it has been seen at the same switch. */
typedef struct {
    lathe_emulator *emulator;
    uint64_t switches, since;
} running;

static running runs[RUNS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static const char *const names[] = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"};
#define SIGNALS (sizeof signals / sizeof signals[0])
static struct sigaction before[SIGNALS];

/* A line put together by nothing that a signal's handler may not call. */
typedef struct {
    char text[512];
    size_t used;
} line;

static void add_text(line *l, const char *text) {
    while (*text && l->used < sizeof l->text)
        l->text[l->used++] = *text++;
}

static void add_number(line *l, uint64_t value) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    add_text(l, &digits[at]);
}

static void add_place(line *l, const host_thread *t) {
    const host_block *b = t->block;
    add_text(l, "kernel ");
    add_text(l, b->grid->from->name);
    for (int i = 0; i < 3; i++) {
        add_text(l, i ? ", " : ", block (");
        add_number(l, b->index[i]);
    }
    add_text(l, "), thread ");
    add_number(l, t->view.thread);
}

/* Says where, then lets the instruction fault again under what was installed before. */
static void handle(int number, siginfo_t *info, void *context) {
    (void)context;
    const lathe_emulator *e = lathe_emu_active;
    size_t which = 0;
    while (which + 1 < SIGNALS && signals[which] != number)
        which++;
    if (e && e->current && info->si_code > 0) {
        line l = {.used = 0};
        add_text(&l, "lathe: ");
        add_place(&l, e->current);
        add_text(&l, ": ");
        add_text(&l, names[which]);
        add_text(&l, number == SIGSEGV || number == SIGBUS
                         ? ", an access to memory that is no allocation\n"
                         : "\n");
        (void)!write(STDERR_FILENO, l.text, l.used);
    }
    sigaction(number, &before[which], NULL);
    if (info->si_code <= 0)
        raise(number);
}

static void install(void) {
    struct sigaction mine = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&mine.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &mine, &before[i]);
}

/* Puts `to` into the first place that holds `from`. While a watcher looks, nobody leaves. */
static void replace(const lathe_emulator *from, lathe_emulator *to) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RUNS; i++)
        if (runs[i].emulator == from) {
            runs[i] = (running){.emulator = to};
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* A fibre that ran off its stack has none left for a handler. */
bool lathe_host_run_watched(lathe_emulator *e, const lathe_emulator_grid *grids, int count) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local char memory[SIGNAL_STACK_BYTES];
    const stack_t mine = {.ss_sp = memory, .ss_size = sizeof memory};
    stack_t outer;
    pthread_once(&once, install);
    const bool lent = sigaltstack(NULL, &outer) == 0 && (outer.ss_flags & SS_DISABLE) != 0 &&
                      sigaltstack(&mine, NULL) == 0;
    replace(NULL, e);
    const bool good = lathe_emulator_run(e, grids, count);
    replace(e, NULL);
    if (lent)
        sigaltstack(&outer, NULL);
    return good;
}

/* Whether this one has not moved for so long; what it points to stands still then. */
static bool is_stuck(running *r, uint64_t now_ns, uint64_t limit_ns) {
    const lathe_emulator *e = r->emulator;
    const uint64_t switches = __atomic_load_n(&e->switches, __ATOMIC_RELAXED);
    if (r->since != 0 && switches == r->switches)
        return now_ns - r->since > limit_ns && e->current;
    r->switches = switches;
    r->since = now_ns;
    return false;
}

bool lathe_host_stuck(uint64_t now_ns, uint64_t limit_ns, char *text, size_t size) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RUNS && !found; i++) {
        found = runs[i].emulator && is_stuck(&runs[i], now_ns, limit_ns);
        if (found) {
            line l = {.used = 0};
            add_place(&l, runs[i].emulator->current);
            snprintf(text, size, "%.*s", (int)l.used, l.text);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}
