/* SPDX-License-Identifier: Apache-2.0
 * What the emulator's sources share: its records of threads, blocks and grids. */
#ifndef LATHE_HOST_INTERNAL_H
#define LATHE_HOST_INTERNAL_H

#include "host_emulator.h"

#define WARP 32u
#define LATHE_EMU_WINDOW 32 /* grids that are considered at once */
#define BARRIERS 16
#define CLUSTER_BARRIER BARRIERS /* among what a thread may wait for */
#define MAX_CLUSTER 8u
#define MBARRIERS 64
#define THREAD_STORES 32
#define BLOCK_STORES 256
#define THREAD_COPIES 256
#define HISTORY 1024u /* a power of two */
#define MAX_THREADS 1024u
#define THREADS_IN_FLIGHT 4096u /* beyond it no further block starts, unless it must */

typedef struct host_thread host_thread;
typedef struct host_cluster host_cluster;
typedef struct host_block host_block;
typedef struct host_grid host_grid;

/* What a thread must see of the stores to gpu memory, by their numbers. */
typedef struct {
    uint64_t seen;     /* all below, at each load */
    uint64_t observed; /* all below, after its next fence: an earlier load or atomic met them */
} host_view;

/* A store that has been made and is not yet visible. Never crosses 16 bytes. */
typedef struct {
    unsigned char *p;
    uint8_t bytes, space;
    unsigned char value[16];
} host_store;

/* A store to memory that other ranks read, on its way. */
typedef struct {
    host_store store;
    uint64_t thread; /* serial number of the thread, of its block and grid */
    uint64_t block;
    const host_grid *grid;
} host_packet;

/* A bulk copy on its way, or a word sent to a block of the cluster. */
typedef struct {
    host_block *block; /* that it goes to */
    unsigned char *to;
    const unsigned char *from; /* NULL: `word` */
    uint32_t word;
    uint32_t bytes;
    uint64_t *mbar;
} host_copy;

/* Sixteen bytes that a thread copies by itself, on their way. */
typedef struct {
    unsigned char *to;
    const unsigned char *from;
    uint32_t group;
} host_own_copy;

/* What a word held before a store to it became visible. */
typedef struct {
    unsigned char *p;
    uint8_t bytes;
    unsigned char old[16];
    uint64_t block;
} host_past;

typedef enum {
    WAIT_NONE, /* ready or running */
    WAIT_WARP,
    WAIT_BARRIER,
    WAIT_MBAR,
    WAIT_GRID,
    WAIT_ENDED
} host_wait;

typedef enum {
    WARP_NONE,
    WARP_SYNC,
    WARP_SHUFFLE,
    WARP_SHUFFLE_XOR,
    WARP_BALLOT,
    WARP_MMA,
    WARP_MATRICES
} host_collective;

struct host_thread {
    lathe_emulator_thread view; /* first: kernels hold pointers to it */
    void *context;              /* where it stopped */
    void *fake_stack;           /* the sanitizer's */
    unsigned char *stack;       /* lowest address */
    size_t colour;              /* bytes left unused at its top */
    host_block *block;
    host_thread *next; /* among the free, or the waiters of one object */
    uint64_t serial;
    host_view known;
    bool slow;      /* runs after others */
    uint64_t round; /* of polling in which it last took part */
    host_wait wait;
    uint32_t wait_id, wait_parity;
    const void *wait_object;
    /* operands and result of a warp's collective */
    uint32_t value, lane, result;
    float *d;
    const uint32_t *a, *b;
    const unsigned char *row;
    uint32_t *words;
    bool abandoned; /* a fault elsewhere ended it */
    int stores;
    host_store store[THREAD_STORES];
    int copies;
    uint32_t groups; /* of copies: number of the one that is not committed */
    host_own_copy copy[THREAD_COPIES];
};

typedef struct {
    host_collective kind;
    uint32_t arrived;
    host_thread *lane[WARP];
} host_warp;

typedef struct {
    uint32_t threads, arrived;
    host_thread *waiters;
} host_barrier;

typedef struct {
    uint64_t *address; /* NULL: free */
    uint32_t arrivals, pending, phase;
    int64_t bytes; /* announced and not yet landed */
    bool fenced;
    host_view known; /* of those that arrived */
    host_thread *waiters;
} host_mbar;

/* Blocks that start together and reach each other's shared memory. */
struct host_cluster {
    uint32_t blocks, threads;
    host_block *block[MAX_CLUSTER]; /* each until it is freed */
    host_barrier barrier;
};

struct host_block {
    host_grid *grid;
    host_cluster *cluster;       /* NULL: none */
    host_block *next, *previous; /* among those in flight */
    uint64_t serial;
    uint32_t index[3];
    uint32_t threads, running;
    bool triggered, waited;
    unsigned char *shared;
    uint32_t shared_bytes;
    unsigned char *touched;
    host_warp warp[MAX_THREADS / WARP];
    host_barrier barrier[BARRIERS];
    host_mbar mbar[MBARRIERS];
    int mbars;
    host_thread **thread; /* each until it ends */
    int stores;
    host_store store[BLOCK_STORES];
};

typedef enum { GRID_QUEUED, GRID_RUNNING, GRID_ENDED, GRID_COMPLETE } host_grid_state;

/* Bytes that a grid wrote, kept back until it completes. */
typedef struct {
    unsigned char *base;
    size_t bytes;
    unsigned char *before, *after; /* copies: from its start, and from its end */
} host_held;

struct host_grid {
    const lathe_emulator_grid *from;
    host_grid *before[LATHE_EMULATOR_BEFORE];
    host_grid_state state;
    bool settled;  /* complete, and so is all that it follows */
    bool followed; /* has an early successor */
    uint32_t blocks, started, ended, triggered, in_flight;
    uint64_t commits; /* at its start */
    uint32_t *order;  /* of starting blocks */
    uint32_t flight_limit;
    host_thread *waiters; /* threads of successors in grid_wait() */
    host_store *late;     /* stores of ended threads */
    int late_count, late_room;
    host_held *held;
    int held_count;
    bool hidden;           /* memory shows what it held at the start */
    bool ahead_begun;      /* early successors may have begun */
    uint64_t ahead_digest; /* of what was written ahead, as it was then */
};

/* What a schedule holds back a part of: a quarter of its threads, warps or blocks. */
typedef enum { SLOW_NONE, SLOW_THREADS, SLOW_WARPS, SLOW_BLOCKS, SLOW_KINDS } host_slowness;

struct lathe_emulator {
    uint64_t random;
    host_thread *current;
    void *main_context;
    void *main_fake_stack;
    const void *main_stack;
    size_t main_stack_bytes;

    host_thread **ready;
    uint32_t ready_count, ready_room;
    uint32_t last_first; /* of 16: how often the thread readied last runs next */
    host_slowness slowness;
    uint64_t slow_salt;
    uint32_t land_mask; /* a landing is considered once in mask + 1 switches */

    host_grid *grids;
    int grid_count, grids_left;
    int first;          /* the first grid that has not settled */
    uint32_t in_flight; /* threads */
    host_block *blocks;
    host_thread *free_threads;

    host_copy *copies;
    int copy_count, copy_room;
    host_packet *packets;
    int packet_count, packet_room;

    host_past past[HISTORY];
    uint64_t commits; /* number of the next */

    uint64_t serial, switches, stall, stacks;
    int member;                  /* of those that share the clock; -1: there are too many */
    uint64_t round, round_world; /* of polling; what the world had come to at its start */
    uint32_t polls, polled, rounds_of_main, stale_rounds, idle_rounds, blind;
    bool useful;  /* something other than polling has happened */
    bool goes_on; /* more follows the run, which time waits for */
    lathe_emulator_find find;
    void *find_context;
    bool failed;
    char message[1024];
};

/* The emulator that this host thread runs. */
extern _Thread_local lathe_emulator *lathe_emu_active;

/* host_fibre.c */
host_thread *lathe_emu_thread_create(lathe_emulator *e); /* NULL: no memory */
void lathe_emu_thread_arm(host_thread *t);
void lathe_emu_threads_free(lathe_emulator *e);
void lathe_emu_enter(lathe_emulator *e); /* runs threads for a while; from the main context */
void lathe_emu_stop(host_thread *t);     /* until readied by another */
void lathe_emu_yield(host_thread *t);
void lathe_emu_ready(lathe_emulator *e, host_thread *t);
_Noreturn void lathe_emu_end(host_thread *t);
_Noreturn void lathe_emu_leave(host_thread *t); /* to the main context, for good */

/* host_fault.c */
_Noreturn void lathe_emu_fault(host_thread *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void lathe_emu_deadlock(lathe_emulator *e);

/* host_store.c */
void lathe_emu_release(host_thread *t);     /* to the block */
void lathe_emu_release_gpu(host_thread *t); /* to the GPU, with what the block has */
void lathe_emu_learn(host_view *known, const host_view *from); /* from the block */
void lathe_emu_retire(host_thread *t);                         /* of a thread that ends */
void lathe_emu_block_retire(lathe_emulator *e, host_block *b);
void lathe_emu_grid_flush(lathe_emulator *e, host_grid *g);
void lathe_emu_chance(host_thread *t);
void lathe_emu_leak(lathe_emulator *e);
bool lathe_emu_before_wait(const host_thread *t);

/* host_bulk.c, host_peer.c */
void lathe_emu_land_copy(lathe_emulator *e, int index);
void lathe_emu_land_packet(lathe_emulator *e, int index);
void lathe_emu_land_grid(lathe_emulator *e, const host_grid *g);
bool lathe_emu_land_any(lathe_emulator *e);

/* host_clock.c */
void lathe_emu_clock_join(lathe_emulator *e);
void lathe_emu_clock_part(const lathe_emulator *e);
void lathe_emu_clock_begin(lathe_emulator *e); /* of a run */
void lathe_emu_clock_end(const lathe_emulator *e);
void lathe_emu_clock_poll(lathe_emulator *e, host_thread *t);
void lathe_emu_clock_idle(lathe_emulator *e, uint32_t polls);
uint64_t lathe_emu_clock_look(lathe_emulator *e);
void lathe_emu_progress(lathe_emulator *e);

/* host_launch.c */
void lathe_emu_block_exit(host_thread *t);

/* host_held.c: at a grid's start, at its end, and when it completes or must give in. */
/* What a grid writes ahead: as it is when the last block triggers, and whether it still is. */
void lathe_emu_ahead_begin(const lathe_emulator *e, host_grid *g);
bool lathe_emu_ahead_kept(const lathe_emulator *e, const host_grid *g);
void lathe_emu_hold_begin(lathe_emulator *e, host_grid *g);
void lathe_emu_hold_end(lathe_emulator *e, host_grid *g);
void lathe_emu_hold_return(host_grid *g);

/* host_emulator.c */
void lathe_emu_poison(lathe_emulator *e, void *p, size_t bytes);

/* Each source puts its prims into the table. */
void lathe_emu_fill_store(lathe_emulator_table *table);
void lathe_emu_fill_warp(lathe_emulator_table *table);
void lathe_emu_fill_bulk(lathe_emulator_table *table);
void lathe_emu_fill_copy(lathe_emulator_table *table);
void lathe_emu_fill_peer(lathe_emulator_table *table);
void lathe_emu_fill_launch(lathe_emulator_table *table);

/* Some thread did not poll in several rounds: none may be held back. */
static inline bool lathe_emu_clock_fair(const lathe_emulator *e) {
    return e->stale_rounds > 4;
}
static inline void lathe_emu_useful(lathe_emulator *e) {
    e->stall = 0;
    e->useful = true;
}
static inline uint64_t lathe_emu_random(lathe_emulator *e) {
    e->random ^= e->random << 13;
    e->random ^= e->random >> 7;
    e->random ^= e->random << 17;
    return e->random * 0x2545f4914f6cdd1dull >> 16;
}
/* Below n. */
static inline uint32_t lathe_emu_pick(lathe_emulator *e, uint32_t n) {
    return (uint32_t)(((lathe_emu_random(e) & 0xffffffffu) * n) >> 32);
}
static inline host_thread *lathe_emu_current(void) {
    return lathe_emu_active->current;
}

#endif
