/* SPDX-License-Identifier: Apache-2.0
 * Explores every interleaving of the mailbox protocol of templates/collective/lamport.cuh, in a
 * model, and compares what it finds with the argument written there.
 *
 * The model. A rank runs one launch after another; launch e is exchange number e. Each of its
 * blocks pushes its packet to every rank, then polls its own slot e mod SLOTS until the packet of
 * each source is there, reads it, and stores emptiness over it. A launch is complete when all its
 * blocks have read all sources; the next one, early or not, pushes after that. What is pushed lands
 * word by word at any later time and in any order, also between one pair. A store of emptiness
 * lands at any time up to the completion of its own launch (lag 0) or of the next one (lag 1: as if
 * completion did not flush the stores of the launch before an early successor's wait returned).
 *
 * Numbers are kept relative to the slowest rank's launch, and slots turn with it, so the states are
 * finitely many and a run of any length is covered. A read of a number other than the launch's own
 * is stale, doubled or torn; a state that nothing leaves has lost a packet. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3
#define SLOTS 3
#define WORDS 2 /* of all blocks together */

typedef struct {
    int ranks, slots, blocks, words; /* words of a block's packet */
    int lag;
    bool eager;  /* wrong: pushes what the next launch sends before its wait */
    bool keeps;  /* wrong: does not empty what was read */
    bool hasty;  /* wrong: takes a packet of which one word is there */
    bool broken; /* what must be found: a violation */
} protocol;

#define SLOWEST 2 /* number of the slowest rank's launch; 1: the one before it */

/* Numbers are those of exchanges; 0 is emptiness. */
typedef struct {
    uint8_t launch[RANKS];
    uint8_t pushed[RANKS];          /* bit per block; with eager, high bits: of the next launch */
    uint8_t read[RANKS][WORDS];     /* per block: bit per source */
    uint8_t empty[RANKS][2][WORDS]; /* of this launch and the last, per word: stores on their way */
    uint8_t cell[RANKS][SLOTS][RANKS][WORDS];
    uint8_t flight[RANKS][RANKS][WORDS]; /* from, to: bit per number on its way */
} state;

typedef struct {
    const protocol *p;
    state *stack;
    size_t depth, room;
    uint64_t *seen; /* fingerprints, 0 for none */
    size_t count, capacity;
    const char *violation;
} search;

static uint64_t fingerprint(const state *s) {
    const unsigned char *bytes = (const unsigned char *)s;
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < sizeof *s; ++i) {
        h = (h ^ bytes[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

static void *grow(void *memory, size_t count, size_t size) {
    void *grown = realloc(memory, count * size);
    if (!grown) {
        fputs("no memory\n", stderr);
        exit(2);
    }
    return grown;
}

static bool insert(uint64_t *table, size_t capacity, uint64_t key) {
    size_t i = key & (capacity - 1);
    while (table[i] && table[i] != key)
        i = (i + 1) & (capacity - 1);
    const bool fresh = table[i] == 0;
    table[i] = key;
    return fresh;
}

static bool is_new(search *x, const state *s) {
    if (2 * x->count >= x->capacity) {
        const size_t capacity = x->capacity ? 2 * x->capacity : 1u << 16;
        uint64_t *table = memset(grow(NULL, capacity, sizeof *table), 0, capacity * sizeof *table);
        for (size_t i = 0; i < x->capacity; ++i)
            if (x->seen[i])
                insert(table, capacity, x->seen[i]);
        free(x->seen);
        x->seen = table;
        x->capacity = capacity;
    }
    const bool fresh = insert(x->seen, x->capacity, fingerprint(s));
    x->count += fresh;
    return fresh;
}

/* Once the slowest rank has gone on, everything counts from its new launch. */
static void normalise(search *x, state *s) {
    const protocol *p = x->p;
    for (int r = 0; r < p->ranks; ++r)
        if (s->launch[r] <= SLOWEST)
            return;
    for (int r = 0; r < p->ranks; ++r) {
        state old = *s;
        s->launch[r]--;
        for (int slot = 0; slot < p->slots; ++slot)
            memcpy(s->cell[r][slot], old.cell[r][(slot + 1) % p->slots], sizeof s->cell[r][slot]);
        uint8_t *cells = &s->cell[r][0][0][0], *flights = &s->flight[r][0][0];
        for (size_t i = 0; i < sizeof s->cell[r]; ++i)
            if (cells[i] == 1)
                x->violation = "a packet was not emptied";
            else if (cells[i])
                cells[i]--;
        for (size_t i = 0; i < sizeof s->flight[r]; ++i) {
            if (flights[i] & 1u << SLOWEST)
                x->violation = "a packet outlived its exchange";
            flights[i] = (uint8_t)(flights[i] >> 1);
        }
    }
}

static void visit(search *x, state s) {
    normalise(x, &s);
    if (x->violation || !is_new(x, &s))
        return;
    if (x->depth == x->room) {
        x->room = x->room ? 2 * x->room : 1024;
        x->stack = grow(x->stack, x->room, sizeof *x->stack);
    }
    x->stack[x->depth++] = s;
}

static uint8_t *cell_of(search *x, state *s, int owner, int number, int source, int word) {
    return &s->cell[owner][(number - 1 + x->p->slots) % x->p->slots][source][word];
}

/* Each returns how many states it leads to. */
static int push(search *x, const state *from, int r, int block, int ahead) {
    const protocol *p = x->p;
    const unsigned bit = 1u << (block + 4 * ahead);
    if (from->pushed[r] & bit || (ahead && !(from->pushed[r] & 1u << block)))
        return 0;
    state s = *from;
    s.pushed[r] = (uint8_t)(s.pushed[r] | bit);
    for (int to = 0; to < p->ranks; ++to)
        for (int w = 0; w < p->words; ++w)
            s.flight[r][to][block * p->words + w] |= (uint8_t)(1u << (s.launch[r] + ahead));
    visit(x, s);
    return 1;
}

static int poll(search *x, const state *from, int r, int block, int source) {
    const protocol *p = x->p;
    if (!(from->pushed[r] & 1u << block) || from->read[r][block] & 1u << source)
        return 0;
    state s = *from;
    int there = 0, right = 0;
    for (int w = 0; w < p->words; ++w) {
        const int number = *cell_of(x, &s, r, s.launch[r], source, block * p->words + w);
        there += number != 0;
        right += number == s.launch[r];
        if (!p->keeps)
            s.empty[r][0][block * p->words + w] |= (uint8_t)(1u << source);
    }
    if (there == 0 || (there < p->words && !p->hasty))
        return 0;
    if (right < p->words)
        x->violation = "a read was stale, doubled or torn";
    s.read[r][block] |= (uint8_t)(1u << source);
    visit(x, s);
    return 1;
}

/* A store of emptiness that lands over a later packet. Where none is there yet, nobody looks before
 * the store must have landed, so that when it does makes no difference: see settle. */
static int land_empty(search *x, const state *from, int r, int age, int source, int word) {
    state s = *from;
    const int number = s.launch[r] - age;
    uint8_t *cell = cell_of(x, &s, r, number, source, word);
    if (!(s.empty[r][age][word] & 1u << source) || *cell == 0 || *cell == number)
        return 0;
    *cell = 0;
    s.empty[r][age][word] &= (uint8_t) ~(1u << source);
    visit(x, s);
    return 1;
}

/* The last moment for the stores of one age: those that did not land over a later packet landed
 * before it. */
static void settle(search *x, state *s, int r, int age) {
    for (int w = 0; w < WORDS; ++w) {
        for (int source = 0; source < x->p->ranks; ++source) {
            uint8_t *cell = cell_of(x, s, r, s->launch[r] - age, source, w);
            if (s->empty[r][age][w] & 1u << source && *cell == s->launch[r] - age)
                *cell = 0;
        }
        s->empty[r][age][w] = 0;
    }
}

static int complete(search *x, const state *from, int r) {
    const protocol *p = x->p;
    state s = *from;
    for (int b = 0; b < p->blocks; ++b)
        if (s.read[r][b] != (1u << p->ranks) - 1u)
            return 0;
    settle(x, &s, r, 1);
    if (p->lag == 0)
        settle(x, &s, r, 0);
    memcpy(s.empty[r][1], s.empty[r][0], sizeof s.empty[r][1]);
    memset(s.empty[r][0], 0, sizeof s.empty[r][0]);
    memset(s.read[r], 0, sizeof s.read[r]);
    s.pushed[r] = (uint8_t)(s.pushed[r] >> 4);
    s.launch[r]++;
    visit(x, s);
    return 1;
}

static int land(search *x, const state *from, int source, int to, int word) {
    int count = 0;
    for (int number = 0; number < 8; ++number) {
        if (!(from->flight[source][to][word] & 1u << number))
            continue;
        state s = *from;
        s.flight[source][to][word] &= (uint8_t) ~(1u << number);
        *cell_of(x, &s, to, number, source, word) = (uint8_t)number;
        visit(x, s);
        ++count;
    }
    return count;
}

static int leave(search *x, const state *s, int r) {
    const protocol *p = x->p;
    int count = complete(x, s, r);
    for (int b = 0; b < p->blocks; ++b) {
        count += push(x, s, r, b, 0) + (p->eager ? push(x, s, r, b, 1) : 0);
        for (int source = 0; source < p->ranks; ++source)
            count += poll(x, s, r, b, source);
    }
    for (int other = 0; other < p->ranks; ++other)
        for (int w = 0; w < p->blocks * p->words; ++w)
            count += land(x, s, r, other, w) + land_empty(x, s, r, 0, other, w) +
                     land_empty(x, s, r, 1, other, w);
    return count;
}

static void explore(search *x) {
    state start;
    memset(&start, 0, sizeof start);
    memset(start.launch, SLOWEST, sizeof start.launch);
    visit(x, start);
    while (x->depth && !x->violation) {
        const state s = x->stack[--x->depth];
        int count = 0;
        for (int r = 0; r < x->p->ranks; ++r)
            count += leave(x, &s, r);
        if (count == 0)
            x->violation = "a packet was lost: all wait";
    }
}

static bool agrees(const protocol *p) {
    search x = {.p = p};
    explore(&x);
    const bool good = (x.violation != NULL) == p->broken;
    printf("%s: %d ranks, %d slots, %d blocks of %d words, lag %d%s%s%s: %zu states, %s\n",
           good ? "ok" : "WRONG", p->ranks, p->slots, p->blocks, p->words, p->lag,
           p->eager ? ", pushes before its wait" : "", p->keeps ? ", does not empty" : "",
           p->hasty ? ", takes half a packet" : "", x.count,
           x.violation ? x.violation : "no violation");
    free(x.seen);
    free(x.stack);
    return good;
}

/* One slot is too few. Two suffice where completion flushes (lag 0) and not where it does not;
 * three suffice either way: the third is slack, as lamport.cuh says. */
int main(void) {
    static const protocol protocols[] = {
        {.ranks = 2, .slots = 1, .blocks = 1, .words = 1, .lag = 0, .broken = true},
        {.ranks = 3, .slots = 1, .blocks = 1, .words = 1, .lag = 0, .broken = true},
        {.ranks = 2, .slots = 2, .blocks = 2, .words = 1, .lag = 0},
        {.ranks = 2, .slots = 2, .blocks = 1, .words = 2, .lag = 0},
        {.ranks = 3, .slots = 2, .blocks = 1, .words = 1, .lag = 0},
        {.ranks = 2, .slots = 2, .blocks = 1, .words = 1, .lag = 1, .broken = true},
        {.ranks = 3, .slots = 2, .blocks = 1, .words = 1, .lag = 1, .broken = true},
        {.ranks = 2, .slots = 3, .blocks = 2, .words = 1, .lag = 1},
        {.ranks = 2, .slots = 3, .blocks = 1, .words = 2, .lag = 1},
        {.ranks = 3, .slots = 3, .blocks = 1, .words = 1, .lag = 0},
        {.ranks = 3, .slots = 3, .blocks = 1, .words = 1, .lag = 1},
        {.ranks = 2, .slots = 3, .blocks = 1, .words = 1, .lag = 1, .keeps = true, .broken = true},
        {.ranks = 2, .slots = 3, .blocks = 1, .words = 2, .lag = 0, .hasty = true, .broken = true},
        {.ranks = 2, .slots = 3, .blocks = 1, .words = 1, .lag = 1, .eager = true, .broken = true},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; ++i) {
        fflush(stdout);
        good = agrees(&protocols[i]) && good;
    }
    return good ? 0 : 1;
}
