// SPDX-License-Identifier: Apache-2.0
// Memory that blocks, launches and ranks share, on the emulator: what is right gives the same bits
// under every schedule, what is forgotten shows.
#include "harness.h"

#include <string>
#include <sys/wait.h>
#include <unistd.h>

// Launch-wide -------------------------------------------------------------------------------------

enum { NO_RELEASE = 1, NO_ACQUIRE = 2, NO_BARRIER = 3 };

// Each block leaves partial sums; the block that arrives last adds them up and resets the counter.
template <int MISSING>
__device__ void last_kernel(const float *x, float *partials, u32 *counter, float *y) {
    u32 *last = reinterpret_cast<u32 *>(dynamic_shared());
    const u32 n = block_threads(), me = thread_id();
    gpu_store(partials + block_id() * n + me, x[block_id() * n + me] * 2);
    if (MISSING != NO_RELEASE)
        gpu_fence();
    if (MISSING != NO_BARRIER)
        block_sync();
    if (me == 0)
        shared_store(last, gpu_atomic_add(counter, 1));
    block_sync();
    if (shared_load(last) != grid_size() - 1)
        return;
    if (MISSING != NO_ACQUIRE)
        gpu_fence();
    float sum = 0;
    for (u32 i = 0; i < grid_size(); i++)
        sum += gpu_load(partials + i * n + me);
    y[me] = sum;
    if (me == 0)
        gpu_store(counter, 0u);
}

template <int MISSING>
static void last_case() {
    static const char *const names[] = {"last", "last, no release", "last, no acquire",
                                        "last, no barrier"};
    Kernel k(names[MISSING], last_kernel<MISSING>, [](lathe_ref *r) {
        const float *x = static_cast<const float *>(lathe_ref_data(r, 0, "x"));
        for (int i = 0; i < 64; i++) {
            double sum = 0;
            for (int b = 0; b < 6; b++)
                sum += 2.0 * static_cast<double>(x[b * 64 + i]);
            lathe_ref_out(r, 0, "y")[i] = sum;
        }
    });
    k.in("x", {6, 64}).integers(-50, 50);
    k.workspace("partials", {6, 64});
    k.workspace("counter", {1}, true);
    k.out("y", {64});
    k.launch({6}, 64, 16);
    if (MISSING)
        k.any_seed_differs();
    else
        k.seeds(20);
    k.run();
}

// A barrier of the whole grid, which needs all blocks in flight.
__device__ static void grid_barrier(u32 *counter, u32 *y) {
    if (thread_id() == 0) {
        gpu_fence();
        gpu_atomic_add(counter, 1);
        while (gpu_load(counter) < grid_size())
            poll_pause();
        gpu_fence();
    }
    block_sync();
    y[block_id() * block_threads() + thread_id()] = 1;
}

static void test_launch_wide() {
    last_case<0>();
    last_case<NO_RELEASE>();
    last_case<NO_ACQUIRE>();
    last_case<NO_BARRIER>();
    Kernel k("grid barrier", grid_barrier, nullptr);
    k.workspace("counter", {1}).fill(0);
    k.out("y", {20 * 64});
    k.launch({20}, 64, 0);
    k.cooperative();
    k.run();
}

// Early launch ------------------------------------------------------------------------------------

__device__ static void producer(const float *x, float *y) {
    grid_trigger();
    const u32 i = block_id() * block_threads() + thread_id();
    y[i] = x[i] + 1;
}
template <bool WAIT>
__device__ void consumer(const float *w, const float *y, float *z) {
    const u32 i = block_id() * block_threads() + thread_id();
    const float weight = bits_float(load_weight4(w + i));
    if (WAIT)
        grid_wait();
    z[i] = weight * y[i];
    if (!WAIT)
        grid_wait();
}

template <bool WAIT>
static void early_case() {
    Kernel a("producer", producer, nullptr), b("consumer", consumer<WAIT>, [](lathe_ref *r) {
        const float *w = static_cast<const float *>(lathe_ref_data(r, 0, "w"));
        const float *y = static_cast<const float *>(lathe_ref_data(r, 0, "y"));
        for (int i = 0; i < 256; i++)
            lathe_ref_out(r, 0, "z")[i] = static_cast<double>(w[i]) * static_cast<double>(y[i]);
    });
    a.in("x", {256}).normal(0, 1);
    a.out("y", {256});
    a.launch({8}, 32, 0);
    b.in("w", {256}).normal(0, 1);
    b.same_as("y", a, "y");
    b.out("z", {256});
    b.launch({4}, 64, 0);
    b.early();
    if (!WAIT)
        a.any_seed_differs();
    harness::run({&a, &b});
}

// What a launch writes ahead of its trigger is there for an early successor at once; written behind
// it, it is a fault.
template <bool BEHIND>
__device__ void ahead_producer(const float *x, float *y) {
    const u32 i = block_id() * block_threads() + thread_id();
    if (BEHIND)
        grid_trigger();
    y[i] = x[i] + 1;
    gpu_fence();
    block_sync();
    grid_trigger();
}

template <bool BEHIND>
static void ahead_case() {
    Kernel a("ahead", ahead_producer<BEHIND>, nullptr),
        b("consumer", consumer<false>, [](lathe_ref *r) {
            const float *w = static_cast<const float *>(lathe_ref_data(r, 0, "w"));
            const float *y = static_cast<const float *>(lathe_ref_data(r, 0, "y"));
            for (int i = 0; i < 256; i++)
                lathe_ref_out(r, 0, "z")[i] = static_cast<double>(w[i]) * static_cast<double>(y[i]);
        });
    a.in("x", {256}).normal(0, 1);
    a.out("y", {256});
    a.ahead("y");
    a.launch({8}, 32, 0);
    a.seeds(20);
    b.in("w", {256}).normal(0, 1);
    b.same_as("y", a, "y");
    b.out("z", {256});
    b.launch({4}, 64, 0);
    b.early();
    if (BEHIND)
        a.any_seed_differs();
    harness::run({&a, &b});
}

__device__ static void never_waits(const float *y, float *z) {
    z[thread_id()] = y[thread_id()];
}

static void test_early() {
    early_case<true>();
    early_case<false>();
    ahead_case<false>();
    ahead_case<true>();
    Kernel a("producer", producer, nullptr), b("never waits", never_waits, nullptr);
    a.in("x", {32}).normal(0, 1);
    a.out("y", {32});
    a.launch({1}, 32, 0);
    b.same_as("y", a, "y");
    b.out("z", {32});
    b.launch({1}, 32, 0);
    b.early();
    a.fails("ended without grid_wait()");
    harness::run({&a, &b});
}

// Misuse ------------------------------------------------------------------------------------------

enum {
    NO_INIT,
    NAMED_0,
    NAMED_ODD,
    OTHER_COUNT,
    COPY_AT_EXIT,
    COPY_ODD,
    COPY_OUTSIDE,
    TOO_MANY_ARRIVALS,
    SPINS,
    NEVER_LANDS,
    STORES_EARLY,
    SENDS_EARLY
};

template <int WHAT>
__device__ void misuse(u32 *x) {
    u64 *mbar = reinterpret_cast<u64 *>(dynamic_shared());
    u8 *stage = dynamic_shared() + 16;
    if (WHAT != NO_INIT && thread_id() == 0) {
        mbar_init(mbar, 1);
        mbar_init_fence();
    }
    if (WHAT == NO_INIT)
        mbar_wait(mbar, 0);
    else if (WHAT == NAMED_0)
        block_sync_named(0, 32);
    else if (WHAT == NAMED_ODD)
        block_sync_named(1, 33);
    else if (WHAT == OTHER_COUNT)
        block_sync_named(1, warp_id() == 0 ? 64 : 32);
    else if (WHAT == SPINS)
        while (gpu_load(x) == 0) {
        }
    else if (WHAT == STORES_EARLY)
        gpu_store(x, 1u);
    else if (WHAT == SENDS_EARLY)
        peer_store4(x, 1);
    else if (thread_id() == 0) {
        mbar_expect(mbar, 64);
        if (WHAT == COPY_AT_EXIT)
            bulk_load(stage, x, 64, mbar);
        else if (WHAT == COPY_ODD)
            bulk_load(stage, x, 24, mbar);
        else if (WHAT == COPY_OUTSIDE)
            bulk_load(stage + 64, x, 64, mbar);
        else if (WHAT == NEVER_LANDS)
            mbar_wait(mbar, 0);
        else if (WHAT == TOO_MANY_ARRIVALS)
            mbar_arrive(mbar);
    }
    grid_wait();
}

// Behind a producer, since two of them are about early launches.
template <int WHAT>
static void misuse_case(const char *fault) {
    Kernel a("producer", producer, nullptr), k("misuse", misuse<WHAT>, nullptr);
    a.in("x", {64}).normal(0, 1);
    a.out("y", {64});
    a.launch({1}, 64, 0);
    k.workspace("x", {64}).fill(0);
    k.launch({1}, 64, 128);
    if (WHAT == STORES_EARLY || WHAT == SENDS_EARLY)
        k.early();
    a.fails(fault);
    harness::run({&a, &k});
}

// The copy may have landed in time.
static void copy_at_exit() {
    Kernel k("misuse", misuse<COPY_AT_EXIT>, nullptr);
    k.workspace("x", {64}).fill(0);
    k.launch({1}, 64, 128);
    k.any_seed_differs();
    k.run();
}

static void test_misuse() {
    misuse_case<NO_INIT>("where no mbar_init() has been");
    misuse_case<NAMED_0>("barriers are 1 to 15");
    misuse_case<NAMED_ODD>("a multiple of 32");
    misuse_case<OTHER_COUNT>("while others wait at it for");
    misuse_case<COPY_ODD>("multiples of 16");
    misuse_case<COPY_OUTSIDE>("bulk_load of 64 bytes to shared byte 80 of 128");
    misuse_case<TOO_MANY_ARRIVALS>("more arrivals at the mbarrier of shared byte 0");
    misuse_case<SPINS>("spins in gpu_load without end");
    misuse_case<NEVER_LANDS>("thread 0 in mbar_wait at shared byte 0, parity 0");
    misuse_case<STORES_EARLY>("gpu_store before grid_wait()");
    misuse_case<SENDS_EARLY>("peer store before grid_wait()");
    copy_at_exit();
}

// Ranks -------------------------------------------------------------------------------------------

// One packet to every peer; the sum of what all sent, in rank order.
__device__ static void exchange(const u32 *x, Mailbox *box, u32 *y) {
    const u32 epoch = gpu_load(box->epoch), slot = epoch % 3, world = box->world;
    const u64 lane = thread_id() * 16ull, slots = box->slot_bytes * world;
    const u32x4 empty = {~0u, ~0u, ~0u, ~0u};
    for (u32 peer = 0; peer < world; peer++)
        peer_store16(box->base[(box->rank + peer) % world] + slots * slot +
                         box->slot_bytes * box->rank + lane,
                     u32x4{x[thread_id()], epoch, box->rank, thread_id()});
    u32 sum = 0;
    const u64 start = clock_ns();
    for (u32 peer = 0; peer < world; peer++) {
        u8 *from = box->base[box->rank] + slots * slot + box->slot_bytes * peer + lane;
        u32x4 packet = peer_load16(from);
        while (packet.x == ~0u || packet.y == ~0u || packet.z == ~0u || packet.w == ~0u) {
            if (clock_ns() - start > box->timeout_ns) {
                gpu_store(box->fault, 1ull);
                return;
            }
            poll_pause();
            packet = peer_load16(from);
        }
        sum += packet.x * (packet.z + 1) + packet.y;
        peer_store16(box->base[box->rank] + slots * ((epoch + 2) % 3) + box->slot_bytes * peer +
                         lane,
                     empty);
    }
    y[thread_id()] = sum;
    block_sync();
    if (thread_id() == 0)
        gpu_store(box->epoch, epoch + 1);
}

static void test_ranks() {
    for (int ranks : {1, 2, 4}) {
        Kernel k("exchange", exchange, [](lathe_ref *r) {
            for (int rank = 0; rank < lathe_ref_ranks(r); rank++)
                for (int i = 0; i < 64; i++) {
                    double sum = 0;
                    for (int peer = 0; peer < lathe_ref_ranks(r); peer++)
                        sum += 6 + static_cast<const u32 *>(lathe_ref_data(r, peer, "x"))[i] *
                                       static_cast<double>(peer + 1);
                    lathe_ref_out(r, rank, "y")[i] = sum;
                }
        });
        k.ranks(ranks);
        k.in("x", {64}).per_rank().integers(0, 1000);
        k.mailbox("box", 64 * 16);
        k.out("y", {64});
        k.launch({1}, 64, 0);
        k.repeat(7);
        k.run();
    }
}

// A peer that never sends: the wait ends in virtual time.
__device__ static void lonely(Mailbox *box, u32 *y) {
    const u64 start = clock_ns();
    while (peer_load4(box->abort) == 0 && clock_ns() - start < box->timeout_ns)
        poll_pause();
    y[thread_id()] = 1;
}

static void test_deadline() {
    Kernel k("lonely", lonely, nullptr);
    k.mailbox("box", 16, 3000000);
    k.out("y", {32});
    k.launch({1}, 32, 0);
    k.run();
    require(static_cast<const u32 *>(k.result("y"))[31] == 1, "the wait did not end");
}

#ifdef __SANITIZE_ADDRESS__
// Sanitizers --------------------------------------------------------------------------------------

enum { PLAIN, WEIGHT, GPU_LOAD, GPU_STORE, ATOMIC, PEER_STORE, PEER_LOAD, BULK, MISALIGNED, WAYS };

// Reaches one step beyond x, or askew, in its own way.
template <int WAY>
__device__ void beyond_kernel(u32 *x) {
    u32 *past = x + 8;
    u64 *mbar = reinterpret_cast<u64 *>(dynamic_shared());
    if (WAY == PLAIN)
        *past = 1;
    else if (WAY == WEIGHT)
        x[0] = load_weight4(past);
    else if (WAY == GPU_LOAD)
        x[0] = gpu_load(past);
    else if (WAY == GPU_STORE)
        gpu_store(past, 1u);
    else if (WAY == ATOMIC)
        gpu_atomic_add(past, 1);
    else if (WAY == PEER_STORE)
        peer_store16(x + 8, u32x4{1, 2, 3, 4});
    else if (WAY == PEER_LOAD)
        x[0] = peer_load16(x + 8).x;
    else if (WAY == MISALIGNED)
        x[0] = load_weight4(reinterpret_cast<u8 *>(x) + 2);
    else {
        mbar_init(mbar, 1);
        mbar_init_fence();
        mbar_expect(mbar, 48);
        bulk_load(mbar + 2, x, 48, mbar);
        mbar_wait(mbar, 0);
    }
}

template <int WAY>
static void beyond_run() {
    Kernel k("beyond", beyond_kernel<WAY>, nullptr);
    k.inout("x", {8}).fill(0);
    k.launch({1}, 1, 256);
    k.run();
}

// Runs in a process of its own, which a sanitizer must end.
static void must_die(void (*body)(), int way) {
    int ends[2];
    require(pipe(ends) == 0, "no pipe");
    const pid_t child = fork();
    require(child >= 0, "no process");
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    std::string text;
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
        text.append(part, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const char *wanted = way == MISALIGNED ? "misaligned address" : "AddressSanitizer";
    require(status != 0 && text.find(wanted) != std::string::npos, "way %d: no %s in: %s", way,
            wanted, text.c_str());
}

static void test_sanitizers() {
    void (*const ways[WAYS])() = {
        beyond_run<PLAIN>,     beyond_run<WEIGHT>, beyond_run<GPU_LOAD>,
        beyond_run<GPU_STORE>, beyond_run<ATOMIC>, beyond_run<PEER_STORE>,
        beyond_run<PEER_LOAD>, beyond_run<BULK>,   beyond_run<MISALIGNED>,
    };
    for (int way = 0; way < WAYS; way++)
        must_die(ways[way], way);
}

#endif

int main() {
    test_launch_wide();
    test_early();
    test_misuse();
    test_ranks();
    test_deadline();
#ifdef __SANITIZE_ADDRESS__
    test_sanitizers();
#endif
    return finish("memory");
}
