/* SPDX-License-Identifier: Apache-2.0
 * Virtual time, one for all ranks of the process. It passes only where no rank can get on: every
 * rank that runs has polled with each of its threads since anything last happened, and none is
 * about to begin. So a deadline says something about the step and nothing about the machine. A rank
 * that is neither running nor expected may be lost: for it time does not stand still. */
#include "host_internal.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "deadline.h"

#define MEMBERS 64
#define PATIENCE_NS 5000000000ull /* real time in which nothing happens; then it passes anyway */
#define STRIDE_NS 100000000ull    /* at most at once: this process may have been stopped too */
#define BLIND_LOOKS 4096          /* at the clock without a pause between */

typedef enum { FREE, AWAY, EXPECTED, RUNNING, IDLE, ASLEEP } presence;

typedef struct {
    _Atomic presence state;
    atomic_uint_fast64_t at; /* IDLE: what the world had come to; ASLEEP: when it wakes */
} member;

static member members[MEMBERS];
static atomic_uint_fast64_t world; /* goes up whenever some rank gets on */
static atomic_uint_fast64_t now = 1000;
static atomic_uint_fast64_t seen_world, seen_at; /* since when the world stands still, real time */
static atomic_uint_fast64_t passed_at;           /* when time last passed, real time */

static void enter(const lathe_emulator *e, presence state) {
    if (e->member >= 0)
        atomic_store(&members[e->member].state, state);
}

void lathe_emu_clock_join(lathe_emulator *e) {
    e->member = -1;
    for (int i = 0; i < MEMBERS && e->member < 0; i++) {
        presence none = FREE;
        if (atomic_compare_exchange_strong(&members[i].state, &none, AWAY))
            e->member = i;
    }
}

void lathe_emu_clock_part(const lathe_emulator *e) {
    enter(e, FREE);
}

void lathe_emulator_expect(lathe_emulator *e) {
    presence away = AWAY;
    if (e->member >= 0) /* one that sleeps goes on sleeping */
        atomic_compare_exchange_strong(&members[e->member].state, &away, EXPECTED);
}

void lathe_emulator_delay(lathe_emulator *e, uint64_t ns) {
    if (e->member < 0)
        return;
    atomic_store(&members[e->member].at, atomic_load(&now) + ns);
    enter(e, ASLEEP);
}

void lathe_emu_progress(lathe_emulator *e) {
    atomic_fetch_add_explicit(&world, 1, memory_order_relaxed);
    e->useful = false;
    e->stall = 0;
}

/* Real time since anything happened. */
static uint64_t stillness(uint64_t then, uint64_t real) {
    if (atomic_exchange(&seen_world, then) != then)
        atomic_store(&seen_at, real);
    return real - atomic_load(&seen_at);
}

static bool out_of_patience(uint64_t then) {
    return stillness(then, lathe_clock_ns()) > PATIENCE_NS;
}

/* Whether a rank other than `self` may yet do something without time passing. */
static bool others_get_on(int self, uint64_t then) {
    for (int i = 0; i < MEMBERS; i++) {
        const presence state = atomic_load(&members[i].state);
        const uint64_t at = atomic_load(&members[i].at);
        if (i != self && (state == EXPECTED || state == RUNNING || (state == IDLE && at != then) ||
                          (state == ASLEEP && at <= atomic_load(&now))))
            return true;
    }
    return false;
}

/* Returns whether time passed. Ranks in other processes are not seen from here: where nothing has
 * come from them for long, time is at least as fast as the real one, so that a wait for one that is
 * stopped ends about when its bound says. */
static bool pass(const lathe_emulator *e, uint64_t then, uint64_t ns) {
    const uint64_t real = lathe_clock_ns();
    const bool still = stillness(then, real) > PATIENCE_NS;
    if (others_get_on(e->member, then) && !still)
        return false;
    const uint64_t before = atomic_exchange(&passed_at, real);
    const uint64_t most = before < real && real - before < STRIDE_NS ? real - before : STRIDE_NS;
    atomic_fetch_add(&now, still && before < real && most > ns ? most : ns);
    return true;
}

/* Leaves the processor to those that get on. */
static void doze(lathe_emulator *e) {
    if (e->idle_rounds < 50)
        e->idle_rounds++;
    if (e->idle_rounds > 3) {
        const struct timespec t = {0, 2000 * (long)e->idle_rounds};
        nanosleep(&t, NULL);
    }
}

static bool others_awake(int self) {
    for (int i = 0; i < MEMBERS; i++) {
        const presence state = atomic_load(&members[i].state);
        if (i != self && (state == EXPECTED || state == RUNNING || state == IDLE))
            return true;
    }
    return false;
}

/* To when the first sleeper wakes: there is nobody else. Who begins to wait meanwhile began after
 * the sleeper, and so its bound is not reached unless the sleeper's delay is longer. */
static void leap(void) {
    uint64_t to = UINT64_MAX;
    for (int i = 0; i < MEMBERS; i++)
        if (atomic_load(&members[i].state) == ASLEEP && atomic_load(&members[i].at) < to)
            to = atomic_load(&members[i].at);
    uint64_t then = atomic_load(&now);
    while (then < to && to != UINT64_MAX && !atomic_compare_exchange_weak(&now, &then, to))
        ;
}

/* Until it is time for a rank that comes late. Time is then for those who wait for it to pass: a
 * sleeper that moved it could take it beyond a deadline before they had looked at the clock. */
static void wake(lathe_emulator *e) {
    member *m = &members[e->member];
    while (atomic_load(&m->state) == ASLEEP && atomic_load(&now) < atomic_load(&m->at)) {
        if (others_awake(e->member))
            doze(e);
        else
            leap();
        sched_yield();
    }
}

void lathe_emu_clock_begin(lathe_emulator *e) {
    if (e->member >= 0)
        wake(e);
    e->polled = e->polls = 0;
    enter(e, RUNNING);
}

void lathe_emu_clock_end(const lathe_emulator *e) {
    enter(e, e->goes_on ? EXPECTED : AWAY);
}

/* Something other than a poll may follow without another rank. */
static bool gets_on(const lathe_emulator *e) {
    if (e->packet_count || e->copy_count || e->rounds_of_main < 2)
        return true;
    for (int i = e->first; i < e->grid_count && i < e->first + LATHE_EMU_WINDOW; i++) {
        const host_grid *g = &e->grids[i];
        const bool room = g->in_flight == 0 || e->in_flight < THREADS_IN_FLIGHT;
        if (g->state == GRID_ENDED || (g->state == GRID_RUNNING &&
                                       ((g->started < g->blocks && room) || g->ended == g->blocks)))
            return true;
    }
    return false;
}

static void begin_round(lathe_emulator *e, uint64_t then) {
    e->round++;
    e->round_world = then;
    e->polled = 0;
    e->rounds_of_main = 0;
    e->stale_rounds = e->idle_rounds = 0;
    enter(e, RUNNING);
}

void lathe_emu_clock_poll(lathe_emulator *e, host_thread *t) {
    if (e->useful)
        lathe_emu_progress(e);
    const uint64_t then = atomic_load(&world);
    e->blind = 0;
    if (then != e->round_world || e->polled == 0)
        begin_round(e, then);
    if (t->round != e->round) {
        t->round = e->round;
        e->polled++;
    }
}

/* All that could run have polled: give the processor to other ranks' threads. */
void lathe_emu_clock_idle(lathe_emulator *e, uint32_t polls) {
    const uint64_t ns = 500 + 50ull * polls;
    sched_yield();
    if (e->polled > e->ready_count && !gets_on(e)) {
        if (e->member >= 0)
            atomic_store(&members[e->member].at, e->round_world);
        enter(e, IDLE);
        if (!pass(e, e->round_world, ns))
            doze(e);
        return;
    }
    e->stale_rounds++;
    if (lathe_emu_clock_fair(e) && out_of_patience(e->round_world))
        atomic_fetch_add(&now, ns);
}

void lathe_emulator_goes_on(lathe_emulator *e, bool more) {
    e->goes_on = more;
}

uint64_t lathe_emulator_wait(lathe_emulator *e, uint64_t ns) {
    const uint64_t then = atomic_load(&world);
    if (e->member >= 0)
        atomic_store(&members[e->member].at, then);
    enter(e, IDLE);
    pass(e, then, ns);
    return atomic_load(&now);
}

void lathe_emulator_waited(lathe_emulator *e) {
    atomic_fetch_add_explicit(&world, 1, memory_order_relaxed);
    enter(e, e->goes_on ? EXPECTED : AWAY);
}

uint64_t lathe_emu_clock_look(lathe_emulator *e) {
    if (++e->blind > BLIND_LOOKS) /* a wait that never pauses ends too */
        atomic_fetch_add(&now, 10);
    return atomic_load(&now);
}
