// SPDX-License-Identifier: Apache-2.0
// The emulator's interface with a host thread per CUDA thread, for ThreadSanitizer: grids one after
// the other, two blocks at a time (a co-operative grid's all). What orders memory on a GPU orders
// it here, and nothing else does: a shuffle meets under a lock that the sanitizer is told to
// ignore. Compiled without instrumentation; locks, memcpy and the calls below are what the
// sanitizer sees. Semantics of values are the fibres' business; faults end the program.
#include "host_emulator.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" {
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
unsigned __tsan_atomic32_load(const volatile unsigned *p, int order);
void __tsan_atomic32_store(volatile unsigned *p, unsigned value, int order);
unsigned __tsan_atomic32_fetch_add(volatile unsigned *p, unsigned value, int order);
unsigned __tsan_atomic32_fetch_or(volatile unsigned *p, unsigned value, int order);
}

namespace {

constexpr int relaxed = 0;
constexpr unsigned warp_lanes = 32;

// Lets the arrivals of one round pass together.
struct Barrier {
    std::mutex lock;
    std::condition_variable opened;
    unsigned arrived = 0;
    uint64_t round = 0;

    template <class Arrive, class Last>
    void pass(unsigned count, Arrive arrive, Last last) {
        std::unique_lock<std::mutex> hold(lock);
        const uint64_t mine = round;
        arrive();
        if (++arrived == count) {
            last();
            arrived = 0;
            round++;
            opened.notify_all();
        } else {
            opened.wait(hold, [&] { return round != mine; });
        }
    }
    void pass(unsigned count) {
        pass(
            count, [] {}, [] {});
    }
};

struct Warp {
    Barrier barrier;
    std::array<unsigned, warp_lanes> in, out;
    std::array<float *, warp_lanes> d;
    std::array<const unsigned *, warp_lanes> a, b;
    std::array<const void *, warp_lanes> row, rows;
};

struct Mbar {
    unsigned arrivals = 0, pending = 0;
    uint64_t phase = 0;
    long long bytes = 0;
};

struct Block;

// Blocks that run together.
struct Cluster {
    Barrier barrier;
    std::vector<Block *> blocks;
};

struct Block {
    const lathe_emulator_grid *grid;
    unsigned index[3];
    unsigned char *shared;
    Barrier whole;
    std::array<Barrier, 16> named;
    std::vector<Warp> warps;
    std::mutex mbar_lock;
    std::condition_variable mbar_changed;
    std::map<const void *, Mbar> mbars;
    std::vector<std::thread> copies;
    std::shared_ptr<Cluster> cluster; // none: its own
};

struct Thread {
    lathe_emulator_thread view;
    Block *block;
    std::vector<unsigned char> touched;
};

thread_local Thread *current;

[[noreturn]] void fault(const char *what) {
    std::fprintf(stderr, "kernel %s: %s\n", current->block->grid->name, what);
    std::_Exit(1);
}

__attribute__((const)) lathe_emulator_thread *self() {
    return &current->view;
}
Warp &my_warp() {
    return current->block->warps[current->view.thread / warp_lanes];
}
unsigned my_lane() {
    return current->view.thread % warp_lanes;
}

// Inside, nothing orders memory and nothing is watched.
struct Unseen {
    Unseen() {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Unseen() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
};

template <class Last>
unsigned exchange(unsigned value, Last last) {
    Unseen unseen;
    Warp &w = my_warp();
    const unsigned lane = my_lane();
    w.barrier.pass(
        warp_lanes, [&] { w.in[lane] = value; }, [&] { last(w); });
    return w.out[lane];
}

// Each lane takes what it wants from a copy, so that lanes may ask for different ones.
unsigned shuffle(unsigned bits, unsigned lane) {
    Unseen unseen;
    Warp &w = my_warp();
    const unsigned me = my_lane();
    w.barrier.pass(
        warp_lanes, [&] { w.in[me] = bits; }, [&] { w.out = w.in; });
    return w.out[lane % warp_lanes];
}
unsigned shuffle_xor(unsigned bits, unsigned mask) {
    return shuffle(bits, my_lane() ^ mask);
}
unsigned ballot(int predicate) {
    return exchange(predicate != 0, [](Warp &w) {
        unsigned bits = 0;
        for (unsigned i = 0; i < warp_lanes; i++)
            bits |= w.in[i] << i;
        w.out.fill(bits);
    });
}
void warp_sync() {
    my_warp().barrier.pass(warp_lanes);
}

float half(unsigned pair, unsigned which) {
    const unsigned bits = which ? pair & 0xffff0000u : pair << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}

// By definition, one sum at a time: row i of a and column j of b from the lanes that hold them.
void multiply(Warp &w) {
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < 8; j++) {
            float sum = 0;
            for (unsigned k = 0; k < 16; k++) {
                const unsigned in = k % 8 / 2, upper = k / 8;
                sum += half(w.a[i % 8 * 4 + in][i / 8 + 2 * upper], k % 2) *
                       half(w.b[j * 4 + in][upper], k % 2);
            }
            w.d[i % 8 * 4 + j / 2][i / 8 * 2 + j % 2] += sum;
        }
}
void mma_bf16(float *d, const unsigned *a, const unsigned *b) {
    Unseen unseen;
    Warp &w = my_warp();
    const unsigned lane = my_lane();
    w.barrier.pass(
        warp_lanes,
        [&] {
            w.d[lane] = d;
            w.a[lane] = a;
            w.b[lane] = b;
        },
        [&] { multiply(w); });
}

// Each lane takes what it wants from the rows that the others name; it is the one that reads.
void load_transposed(unsigned *d, const void *row) {
    std::array<const void *, warp_lanes> rows;
    {
        Unseen unseen;
        Warp &w = my_warp();
        const unsigned lane = my_lane();
        w.barrier.pass(
            warp_lanes, [&] { w.row[lane] = row; }, [&] { w.rows = w.row; });
        rows = w.rows;
    }
    const unsigned lane = my_lane();
    for (unsigned m = 0; m < 4; m++)
        for (unsigned i = 0; i < 2; i++)
            std::memcpy(reinterpret_cast<char *>(d + m) + 2 * i,
                        static_cast<const char *>(rows[8 * m + lane % 4 * 2 + i]) + lane / 4 * 2,
                        2);
}

void block_sync(unsigned id, unsigned threads, int whole_block) {
    Block &b = *current->block;
    if (whole_block)
        b.whole.pass(current->view.threads);
    else
        b.named[id % 16].pass(threads);
}

void outside(const void *, void *, unsigned) {
    fault("shared_load outside of shared memory");
}
void outside_store(void *, const void *, unsigned) {
    fault("shared_store outside of shared memory");
}
unsigned atomic_add(unsigned *p, unsigned value) {
    return __tsan_atomic32_fetch_add(p, value, relaxed);
}
unsigned atomic_or(unsigned *p, unsigned value) {
    return __tsan_atomic32_fetch_or(p, value, relaxed);
}

// Words apiece: no kernel is promised more of these. Packets of 16 bytes go in one piece below.
void load_words(const void *p, void *value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i += 4) {
        const unsigned word = __tsan_atomic32_load(
            reinterpret_cast<const unsigned *>(static_cast<const char *>(p) + i), relaxed);
        std::memcpy(static_cast<char *>(value) + i, &word, 4);
    }
}
void store_words(void *p, const void *value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i += 4) {
        unsigned word;
        std::memcpy(&word, static_cast<const char *>(value) + i, 4);
        __tsan_atomic32_store(reinterpret_cast<unsigned *>(static_cast<char *>(p) + i), word,
                              relaxed);
    }
}

std::mutex packets; // one at a time, so that each is whole; orders nothing
void peer_store(void *p, const void *value, unsigned bytes) {
    Unseen unseen;
    const std::lock_guard<std::mutex> hold(packets);
    std::memcpy(p, value, bytes);
}
void peer_load(const void *p, void *value, unsigned bytes) {
    Unseen unseen;
    const std::lock_guard<std::mutex> hold(packets);
    std::memcpy(value, p, bytes);
}

char fences; // every fence follows all earlier ones
void fence() {
    __tsan_acquire(&fences);
    __tsan_release(&fences);
}

void mbar_init(unsigned long long *address, unsigned arrivals) {
    const std::lock_guard<std::mutex> hold(current->block->mbar_lock);
    current->block->mbars[address] = {arrivals, arrivals, 0, 0};
}
void nothing() {}
void finish_phase(Block &b, Mbar &m) {
    if (m.pending == 0 && m.bytes == 0) {
        m.phase++;
        m.pending = m.arrivals;
        b.mbar_changed.notify_all();
    }
}
void mbar_expect(unsigned long long *address, unsigned bytes) {
    Block &b = *current->block;
    const std::lock_guard<std::mutex> hold(b.mbar_lock);
    Mbar &m = b.mbars.at(address);
    m.bytes += bytes;
    m.pending--;
    finish_phase(b, m);
}
void mbar_arrive(unsigned long long *address) {
    mbar_expect(address, 0);
}
void mbar_wait(unsigned long long *address, unsigned parity) {
    Block &b = *current->block;
    std::unique_lock<std::mutex> hold(b.mbar_lock);
    Mbar &m = b.mbars.at(address);
    b.mbar_changed.wait(hold, [&] { return (m.phase & 1) != (parity & 1); });
}
void bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *address) {
    Block *b = current->block;
    std::thread copy([=] {
        std::memcpy(to, from, bytes);
        const std::lock_guard<std::mutex> hold(b->mbar_lock);
        Mbar &m = b->mbars.at(address);
        m.bytes -= bytes;
        finish_phase(*b, m);
    });
    const std::lock_guard<std::mutex> hold(b->mbar_lock);
    b->copies.push_back(std::move(copy));
}

// The TSan build sees who reads what was copied without a barrier in between; the fibres show copies
// that nobody waited for.
void copy16(void *to, const void *from) {
    std::memcpy(to, from, 16);
}
void copy_wait(unsigned) {}

void cluster_sync() {
    Cluster *c = current->block->cluster.get();
    if (c)
        c->barrier.pass(static_cast<unsigned>(c->blocks.size()) * current->view.threads);
    else
        block_sync(0, 0, 1);
}
void cluster_send(unsigned block, void *to, unsigned word, unsigned long long *address) {
    Block *b = current->block->cluster->blocks[block];
    const auto offset = [](const void *p) {
        return static_cast<const unsigned char *>(p) - current->block->shared;
    };
    void *const there = b->shared + offset(to), *const mbar = b->shared + offset(address);
    const std::lock_guard<std::mutex> hold(b->mbar_lock);
    std::memcpy(there, &word, 4);
    Mbar &m = b->mbars.at(mbar);
    m.bytes -= 4;
    finish_phase(*b, m);
}

// Slower than the world's: everything here is, and a peer that is late is not lost.
unsigned long long clock_ns() {
    return static_cast<unsigned long long>(
               std::chrono::steady_clock::now().time_since_epoch().count()) /
           20;
}
void poll_pause() {
    std::this_thread::yield();
}

const lathe_emulator_table table = {
    .version = LATHE_EMULATOR_VERSION,
    .self = self,
    .shared_load = outside,
    .shared_store = outside_store,
    .shared_atomic_add = atomic_add,
    .block_sync = block_sync,
    .warp_sync = warp_sync,
    .shuffle = shuffle,
    .shuffle_xor = shuffle_xor,
    .ballot = ballot,
    .load_transposed = load_transposed,
    .mma_bf16 = mma_bf16,
    .mbar_init = mbar_init,
    .mbar_init_fence = nothing,
    .mbar_expect = mbar_expect,
    .mbar_arrive = mbar_arrive,
    .mbar_wait = mbar_wait,
    .bulk_load = bulk_load,
    .async_fence = nothing,
    .copy16 = copy16,
    .copy_commit = nothing,
    .copy_wait = copy_wait,
    .cluster_sync = cluster_sync,
    .cluster_send = cluster_send,
    .grid_wait = nothing,
    .grid_trigger = nothing,
    .gpu_load = load_words,
    .gpu_store = store_words,
    .gpu_fence = fence,
    .gpu_atomic_add = atomic_add,
    .gpu_atomic_or = atomic_or,
    .peer_store = peer_store,
    .peer_load = peer_load,
    .peer_fence = fence,
    .clock_ns = clock_ns,
    .poll_pause = poll_pause,
};

void call(const lathe_emulator_grid &g) {
    using Entry =
        void(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
             void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
             void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
    void *a[LATHE_EMULATOR_ARGUMENTS] = {};
    for (int i = 0; i < g.argument_count; i++)
        a[i] = g.arguments[i];
    reinterpret_cast<Entry *>(g.entry)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                       a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17],
                                       a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25],
                                       a[26], a[27], a[28], a[29], a[30], a[31]);
}

std::unique_ptr<Block> make_block(const lathe_emulator_grid &g, unsigned number) {
    auto b = std::make_unique<Block>();
    const lathe_geometry &shape = g.geometry;
    b->grid = &g;
    b->index[0] = number % shape.grid[0];
    b->index[1] = number / shape.grid[0] % shape.grid[1];
    b->index[2] = number / shape.grid[0] / shape.grid[1];
    b->warps = std::vector<Warp>((shape.block + warp_lanes - 1) / warp_lanes);
    const size_t bytes = (shape.shared_bytes + 1023u) / 1024 * 1024 + 1024;
    b->shared = static_cast<unsigned char *>(std::aligned_alloc(1024, bytes));
    std::memset(b->shared, 0xff, bytes);
    return b;
}

void run_thread(Block *b, unsigned index) {
    const lathe_geometry &shape = b->grid->geometry;
    Thread t;
    t.block = b;
    t.touched.resize(shape.shared_bytes / 16 + 2);
    t.view = {};
    t.view.thread = index;
    t.view.threads = shape.block;
    std::memcpy(t.view.block, b->index, sizeof b->index);
    std::memcpy(t.view.grid, shape.grid, sizeof shape.grid);
    t.view.shared = b->shared;
    t.view.shared_bytes = shape.shared_bytes;
    t.view.touched = t.touched.data();
    current = &t;
    call(*b->grid);
}

void run_blocks(const lathe_emulator_grid &g, unsigned first, unsigned count) {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::thread> threads;
    const auto cluster = g.geometry.cluster > 1 ? std::make_shared<Cluster>() : nullptr;
    for (unsigned n = first; n < first + count; n++) {
        blocks.push_back(make_block(g, n));
        if (cluster) {
            blocks.back()->cluster = cluster;
            cluster->blocks.push_back(blocks.back().get());
        }
    }
    for (const auto &b : blocks)
        for (unsigned i = 0; i < g.geometry.block; i++)
            threads.emplace_back(run_thread, b.get(), i);
    for (std::thread &t : threads)
        t.join();
    for (auto &b : blocks) {
        for (std::thread &copy : b->copies)
            copy.join();
        std::free(b->shared);
    }
}

} // namespace

struct lathe_emulator {
    char unused;
};

lathe_emulator *lathe_emulator_create(uint64_t) {
    return new lathe_emulator();
}
void lathe_emulator_destroy(lathe_emulator *e) {
    delete e;
}
void lathe_emulator_set_find(lathe_emulator *, lathe_emulator_find, void *) {}
const lathe_emulator_table *lathe_emulator_interface() {
    return &table;
}
const char *lathe_emulator_message(const lathe_emulator *) {
    return "";
}
bool lathe_emulator_run(lathe_emulator *, const lathe_emulator_grid *grids, int count) {
    for (int i = 0; i < count; i++) {
        const lathe_geometry &shape = grids[i].geometry;
        const unsigned blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
        const unsigned together = shape.cooperative   ? blocks
                                  : shape.cluster > 1 ? shape.cluster
                                                      : 2;
        for (unsigned first = 0; first < blocks; first += together)
            run_blocks(grids[i], first, std::min(together, blocks - first));
    }
    return true;
}
