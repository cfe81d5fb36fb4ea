// SPDX-License-Identifier: Apache-2.0
// The prims' semantics on the emulator against plain C, and that it shows what a kernel forgets.
#include "harness.h"

#include <cmath>

// Numbers -----------------------------------------------------------------------------------------

static double e4m3_of(unsigned code) {
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    return exponent == 0 ? std::ldexp(mantissa, -9)
                         : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
}

// Nearest of codes 0 to `last`, the even one of two.
template <class Value>
static unsigned nearest(double x, unsigned last, Value value) {
    unsigned best = 0;
    for (unsigned code = 1; code <= last; code++) {
        const double here = std::fabs(x - value(code)), there = std::fabs(x - value(best));
        if (here < there || (here == there && code % 2 == 0))
            best = code;
    }
    return best;
}

static void check_small_floats(float x) {
    const auto e2m1_of = [](unsigned code) { return static_cast<double>(e2m1_to_float(code)); };
    const double magnitude = std::fmin(std::fabs(static_cast<double>(x)), 1000.0);
    const unsigned sign = std::signbit(x) ? 1 : 0;
    const unsigned wide = nearest(magnitude, 0x7e, e4m3_of) | sign << 7;
    const unsigned narrow = nearest(magnitude, 7, e2m1_of) | sign << 3;
    require(float_to_e4m3(x).bits == wide, "e4m3 of %a is %x, wanted %x", static_cast<double>(x),
            float_to_e4m3(x).bits, wide);
    require(float_to_e2m1(x) == narrow, "e2m1 of %a is %x, wanted %x", static_cast<double>(x),
            float_to_e2m1(x), narrow);
}

static void test_numbers() {
    for (unsigned code = 0; code < 0x7f; code++) {
        const float here = static_cast<float>(e4m3_of(code));
        require(e4m3_to_float(e4m3{static_cast<u8>(code)}) == here, "e4m3 code %u", code);
        require(e4m3_to_float(e4m3{static_cast<u8>(code | 0x80)}) == -here, "e4m3 code -%u", code);
        const float next = code < 0x7e ? static_cast<float>(e4m3_of(code + 1)) : here + 32.0f;
        const float middle = (here + next) / 2;
        for (float x : {here, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
            check_small_floats(x);
            check_small_floats(-x);
        }
    }
    const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (u32 code = 0; code < 8; code++) {
        require(e2m1_to_float(code) == e2m1[code], "e2m1 code %u", code);
        require(float_bits(e2m1_to_float(code | 8)) == float_bits(-e2m1[code]), "e2m1 -%u", code);
        const float middle = (e2m1[code] + (code < 7 ? e2m1[code + 1] : 8.0f)) / 2;
        for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 9.0f)}) {
            check_small_floats(x);
            check_small_floats(-x);
        }
    }
    for (float x : {1e30f, -1e30f, HUGE_VALF, -HUGE_VALF, 1e-30f, -0.0f, 464.0f, 463.99f})
        check_small_floats(x);
    require(float_to_e4m3(NAN).bits == 0x7f && float_to_e2m1(NAN) == 7, "NaN of small floats");
    u32 word = 12345;
    for (int i = 0; i < 2000000; i++) {
        word = word * 1664525u + 1013904223u;
        const float x = bits_float(word ^ (i % 3 == 0 ? 0x8000u : 0));
        if (std::isnan(x))
            require(float_to_bf16(x).bits == 0x7fff, "bf16 of NaN");
        else
            require(float_to_bf16(x).bits == lathe_bf16_bits(static_cast<double>(x)), "bf16 of %a",
                    static_cast<double>(x));
        if (i % 64 == 0) { /* the same mantissa where small floats have values */
            const u32 exponent = 107u + static_cast<u32>(i / 64 % 32);
            check_small_floats(bits_float((word & 0x807fffffu) | exponent << 23));
        }
    }
    require(pack_bf16(1.0f, -2.0f) == 0xc0003f80u, "pack_bf16");
    require(bf16_low(0xc0003f80u) == 1.0f && bf16_high(0xc0003f80u) == -2.0f, "bf16 halves");
}

static void test_maths() {
    for (int i = -2000; i <= 2000; i++) {
        const float x = static_cast<float>(i) * 0.05f;
        const double d = static_cast<double>(x);
        const auto near = [&](float found, double want, const char *what) {
            const double off = std::fabs(static_cast<double>(found) - want);
            require(off <= std::fabs(want) * 0x1p-22 + 0x1p-149, "%s(%g) is %g, wanted %g", what, d,
                    static_cast<double>(found), want);
        };
        near(tanh_f32(x), std::tanh(d), "tanh");
        near(sigmoid_f32(x), 1 / (1 + std::exp(-d)), "sigmoid");
        if (std::fabs(d) < 80) {
            near(exp_f32(x), std::exp(d), "exp");
            near(exp2_f32(x), std::exp2(d), "exp2");
        }
        if (x > 0) {
            near(log2_f32(x), std::log2(d), "log2");
            near(rsqrt_f32(x), 1 / std::sqrt(d), "rsqrt");
        }
    }
    require(divide_f32(1.0f, 3.0f) == 1.0f / 3.0f && std::isinf(divide_f32(1.0f, 0.0f)), "divide");
    require(max_f32(NAN, 1.0f) == 1.0f && min_f32(2.0f, NAN) == 2.0f, "max and min of NaN");
    require(sigmoid_f32(-200.0f) >= 0.0f && sigmoid_f32(200.0f) == 1.0f, "sigmoid far out");
}

// Warps -------------------------------------------------------------------------------------------

__device__ static void warp_kernel(const float *a, const float *b, float *d, u32 *bits) {
    const u32 lane = lane_id(), group = lane / 4, in = lane % 4;
    u32 fragment_a[4], fragment_b[2];
    for (u32 i = 0; i < 4; i++) {
        const u32 row = group + 8 * (i % 2), column = 2 * in + 8 * (i / 2);
        fragment_a[i] = pack_bf16(a[row * 16 + column], a[row * 16 + column + 1]);
    }
    for (u32 i = 0; i < 2; i++) {
        const u32 row = 2 * in + 8 * i;
        fragment_b[i] = pack_bf16(b[row * 8 + group], b[(row + 1) * 8 + group]);
    }
    float sum[4] = {1, 1, 1, 1};
    mma_bf16(sum, fragment_a, fragment_b);
    for (u32 i = 0; i < 4; i++)
        d[(group + 8 * (i / 2)) * 8 + 2 * in + i % 2] = sum[i];
    bits[lane] = warp_shuffle(lane * 10, 31 - lane);
    bits[32 + lane] = warp_shuffle_xor(lane, 5u);
    bits[64 + lane] = warp_ballot(lane % 3 == 0);
    bits[96 + lane] = static_cast<u32>(warp_shuffle(-static_cast<int>(lane), 7));
    bits[128 + lane] = float_bits(warp_shuffle_xor(static_cast<float>(lane), 16u));
}

static void test_warp() {
    Kernel k("warp", warp_kernel, nullptr);
    harness::Argument &a = k.in("a", {16, 16}).integers(-8, 8);
    harness::Argument &b = k.in("b", {16, 8}).integers(-8, 8);
    k.out("d", {16, 8});
    k.out("bits", {5, 32});
    k.launch({1}, 32, 0);
    k.run();
    const float *x = reinterpret_cast<const float *>(a.initial[0].data());
    const float *y = reinterpret_cast<const float *>(b.initial[0].data());
    const float *d = static_cast<const float *>(k.result("d"));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float want = 1;
            for (int c = 0; c < 16; c++)
                want += x[i * 16 + c] * y[c * 8 + j];
            require(d[i * 8 + j] == want, "mma[%d, %d]", i, j);
        }
    const u32 *bits = static_cast<const u32 *>(k.result("bits"));
    u32 ballot = 0;
    for (u32 lane = 0; lane < 32; lane++)
        ballot |= (lane % 3 == 0 ? 1u : 0u) << lane;
    for (u32 lane = 0; lane < 32; lane++) {
        require(bits[lane] == (31 - lane) * 10, "shuffle, lane %u", lane);
        require(bits[32 + lane] == (lane ^ 5u), "shuffle_xor, lane %u", lane);
        require(bits[64 + lane] == ballot, "ballot, lane %u", lane);
        require(static_cast<int>(bits[96 + lane]) == -7, "shuffle of int, lane %u", lane);
        require(bits_float(bits[128 + lane]) == static_cast<float>(lane ^ 16u), "of float");
    }
}

__device__ static void half_a_warp(u32 *out) {
    if (lane_id() < 16)
        out[lane_id()] = warp_ballot(true);
}
__device__ static void mixed_warp(u32 *out) {
    out[lane_id()] = lane_id() == 3 ? warp_ballot(true) : warp_shuffle(lane_id(), 0);
}

static void test_warp_faults() {
    Kernel half("half", half_a_warp, nullptr);
    half.out("out", {32});
    half.launch({1}, 32, 0);
    half.fails("threads 0-15 in warp_ballot (16 of 32 lanes are there)");
    half.run();
    Kernel mixed("mixed", mixed_warp, nullptr);
    mixed.out("out", {32});
    mixed.launch({1}, 32, 0);
    mixed.fails("while");
    mixed.run();
}

// Blocks ------------------------------------------------------------------------------------------

// Each thread sums what the others left in shared memory, twice over the same words. MISSING leaves
// out one barrier.
template <int MISSING>
__device__ void block_kernel(const u32 *x, u32 *y) {
    u32 *words = reinterpret_cast<u32 *>(dynamic_shared());
    const u32 n = block_threads(), me = thread_id();
    u32 sum = 0;
    for (u32 round = 0; round < 2; round++) {
        shared_store(words + me, x[me] * (round + 1));
        if (MISSING != 1)
            block_sync();
        for (u32 i = 0; i < n; i++)
            sum += shared_load(words + (me + i) % n);
        if (MISSING != 2)
            block_sync();
    }
    y[me] = sum;
}

template <int MISSING>
static void block_case(bool broken) {
    Kernel k("block", block_kernel<MISSING>, [](lathe_ref *r) {
        const u32 *x = static_cast<const u32 *>(lathe_ref_data(r, 0, "x"));
        u32 sum = 0;
        for (int i = 0; i < 96; i++)
            sum += 3 * x[i];
        for (int i = 0; i < 96; i++)
            lathe_ref_out(r, 0, "y")[i] = sum;
    });
    k.in("x", {96}).integers(0, 100);
    k.out("y", {96});
    k.launch({1}, 96, 96 * 4);
    if (broken)
        k.any_seed_differs();
    k.run();
}

// Warps 0 and 1 hand words to warp 2 through barrier 1; warp 3 takes no part.
__device__ static void named_kernel(int *y) {
    int *words = reinterpret_cast<int *>(dynamic_shared());
    if (warp_id() < 2)
        shared_store(words + thread_id(), static_cast<int>(thread_id()) + 7);
    if (warp_id() < 3)
        block_sync_named(1, 96);
    if (warp_id() == 2)
        y[lane_id()] = shared_load(words + lane_id()) + shared_load(words + 32 + lane_id());
}

// Lanes hand words to their neighbours; a shuffle in between orders nothing.
template <bool SYNC>
__device__ void neighbour_kernel(u32 *y) {
    u32 *words = reinterpret_cast<u32 *>(dynamic_shared());
    shared_store(words + thread_id(), thread_id() + 1);
    if (SYNC)
        warp_sync();
    else
        (void)warp_shuffle(0u, 0);
    y[thread_id()] = shared_load(words + (thread_id() ^ 1u));
}
template <bool SYNC>
static void neighbour_case() {
    Kernel k("neighbour", neighbour_kernel<SYNC>, [](lathe_ref *r) {
        for (int i = 0; i < 64; i++)
            lathe_ref_out(r, 0, "y")[i] = (i ^ 1) + 1;
    });
    k.out("y", {64});
    k.launch({1}, 64, 256);
    if (!SYNC)
        k.any_seed_differs();
    k.run();
}

__device__ static void unequal_barrier(u32 *y) {
    if (thread_id() != 5)
        block_sync();
    y[thread_id()] = 1;
}
__device__ static void outside_kernel(u32 *y) {
    y[0] = shared_load(reinterpret_cast<u32 *>(dynamic_shared()) + 16);
}

static void test_block() {
    block_case<0>(false);
    block_case<1>(true);
    block_case<2>(true);
    neighbour_case<true>();
    neighbour_case<false>();
    Kernel named("named", named_kernel, [](lathe_ref *r) {
        for (int i = 0; i < 32; i++)
            lathe_ref_out(r, 0, "y")[i] = 2 * i + 32 + 14;
    });
    named.out("y", {32});
    named.launch({1}, 128, 256);
    named.run();
    Kernel unequal("unequal", unequal_barrier, nullptr);
    unequal.out("y", {64});
    unequal.launch({1}, 64, 0);
    unequal.fails("block_sync, barrier 0 (63 of 64 threads are there)");
    unequal.run();
    Kernel outside("outside", outside_kernel, nullptr);
    outside.out("y", {1});
    outside.launch({1}, 1, 64);
    outside.fails("at byte 64 of 64 bytes of shared memory");
    outside.run();
}

// Bulk copies -------------------------------------------------------------------------------------

enum { WHOLE, NO_WAIT, NO_INIT_FENCE, NO_ASYNC_FENCE, NO_EMPTY_WAIT };

// Thread 0 streams eight pieces through a ring of two stages; warp 1 adds them up.
template <int WHAT>
__device__ void ring_kernel(const u32 *x, u32 *y) {
    u8 *base = dynamic_shared();
    u64 *full = reinterpret_cast<u64 *>(base), *empty = full + 2;
    u32 *stage = reinterpret_cast<u32 *>(base + 128);
    if (thread_id() == 0) {
        for (int i = 0; i < 2; i++) {
            mbar_init(full + i, 1);
            mbar_init(empty + i, 32);
        }
        if (WHAT != NO_INIT_FENCE)
            mbar_init_fence();
    }
    block_sync();
    if (thread_id() == 0)
        for (u32 i = 0; i < 8; i++) {
            if (i >= 2 && WHAT != NO_EMPTY_WAIT)
                mbar_wait(empty + i % 2, (i / 2 - 1) % 2);
            if (WHAT != NO_ASYNC_FENCE)
                async_fence();
            mbar_expect(full + i % 2, 128);
            bulk_load(stage + i % 2 * 32, x + i * 32, 128, full + i % 2);
        }
    if (warp_id() == 1) {
        u32 sum = 0;
        for (u32 i = 0; i < 8; i++) {
            if (WHAT != NO_WAIT)
                mbar_wait(full + i % 2, i / 2 % 2);
            sum = sum * 3 + shared_load(stage + i % 2 * 32 + lane_id());
            mbar_arrive(empty + i % 2);
        }
        y[lane_id()] = sum;
    }
}

template <int WHAT>
static void ring_case(const char *fault = nullptr) {
    Kernel k("ring", ring_kernel<WHAT>, [](lathe_ref *r) {
        const u32 *x = static_cast<const u32 *>(lathe_ref_data(r, 0, "x"));
        for (int lane = 0; lane < 32; lane++) {
            u32 sum = 0;
            for (int i = 0; i < 8; i++)
                sum = sum * 3 + x[i * 32 + lane];
            lathe_ref_out(r, 0, "y")[lane] = sum;
        }
    });
    k.in("x", {8, 32}).integers(0, 1000);
    k.out("y", {32});
    k.launch({2}, 64, 128 + 256);
    if (fault)
        k.fails(fault);
    else if (WHAT != WHOLE)
        k.any_seed_differs();
    else
        k.seeds(10);
    k.run();
}

static void test_bulk() {
    ring_case<WHOLE>();
    ring_case<NO_WAIT>();
    ring_case<NO_INIT_FENCE>("without mbar_init_fence()");
    ring_case<NO_ASYNC_FENCE>("without an async_fence() since");
    ring_case<NO_EMPTY_WAIT>();
}

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

__device__ static void never_waits(const float *y, float *z) {
    z[thread_id()] = y[thread_id()];
}

static void test_early() {
    early_case<true>();
    early_case<false>();
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

int main() {
    test_numbers();
    test_maths();
    test_warp();
    test_warp_faults();
    test_block();
    test_bulk();
    test_launch_wide();
    test_early();
    test_ranks();
    test_deadline();
    return finish("prims");
}
