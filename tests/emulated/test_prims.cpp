// SPDX-License-Identifier: Apache-2.0
// Warps, blocks and bulk copies on the emulator against plain C, and that it shows what a kernel
// forgets.
#include "harness.h"

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
    bits[160 + lane] = warp_max(lane * 7 % 32 << 27);
    bits[192 + lane] = warp_min((lane * 5 + 3) % 32 + 4000000000u);
}

static void test_warp() {
    Kernel k("warp", warp_kernel, nullptr);
    harness::Argument &a = k.in("a", {16, 16}).integers(-8, 8);
    harness::Argument &b = k.in("b", {16, 8}).integers(-8, 8);
    k.out("d", {16, 8});
    k.out("bits", {7, 32});
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
        require(bits[160 + lane] == 31u << 27, "max, lane %u", lane);
        require(bits[192 + lane] == 4000000000u, "min, lane %u", lane);
    }
}

__device__ static void half_a_warp(u32 *out) {
    if (lane_id() < 16)
        out[lane_id()] = warp_ballot(true);
}
__device__ static void mixed_warp(u32 *out) {
    out[lane_id()] = lane_id() == 3 ? warp_ballot(true) : warp_shuffle(lane_id(), 0);
}

// Lane 8 m + r brings row r of matrix m; bit 0 of a row's place is turned so that rows lie apart.
__device__ static void transposed_kernel(const u32 *x, u32 *y) {
    u8 *shared = dynamic_shared();
    const u32 lane = lane_id();
    for (u32 i = 0; i < 4; i++)
        shared_store(reinterpret_cast<u32 *>(shared + (lane ^ 1) * 16) + i, x[lane * 4 + i]);
    warp_sync();
    u32 d[4];
    load_transposed(d, shared + (lane ^ 1) * 16);
    for (u32 m = 0; m < 4; m++)
        y[lane * 4 + m] = d[m];
}

static void test_transposed() {
    Kernel k("transposed", transposed_kernel, [](lathe_ref *r) {
        const u16 *x = static_cast<const u16 *>(lathe_ref_data(r, 0, "x"));
        for (u32 lane = 0; lane < 32; lane++)
            for (u32 m = 0; m < 4; m++) {
                const u32 row = 8 * m + lane % 4 * 2, column = lane / 4;
                lathe_ref_out(r, 0, "y")[lane * 4 + m] =
                    x[row * 8 + column] + 65536.0 * x[(row + 1) * 8 + column];
            }
    });
    k.in("x", {32, 4}).integers(0, 1 << 30);
    k.out("y", {32, 4});
    k.launch({1}, 32, 512);
    k.run();
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

// Copies of a thread ------------------------------------------------------------------------------

enum { COPIES_WAITED, COPIES_TOO_FEW, COPIES_NO_BARRIER, COPIES_LEFT, COPIES_ODD };

// Two warps bring eight pieces, two of them on their way while one is added up.
template <int WHAT>
__device__ void copies_kernel(const u32 *x, u32 *y) {
    u32 *stages = reinterpret_cast<u32 *>(dynamic_shared());
    const u32 me = thread_id();
    for (u32 i = 0; i < 2; i++) {
        copy16(stages + i * 256 + me * 4, x + i * 256 + me * 4 + (WHAT == COPIES_ODD ? 1 : 0));
        copy_commit();
    }
    u32 sum = 0;
    for (u32 i = 0; i < 8; i++) {
        copy_wait<WHAT == COPIES_TOO_FEW ? 2 : 1>();
        if (WHAT != COPIES_NO_BARRIER)
            block_sync();
        if (i + 2 < 8)
            copy16(stages + (i + 2) % 3 * 256 + me * 4, x + (i + 2) * 256 + me * 4);
        copy_commit();
        for (u32 j = 0; j < 4; j++)
            sum = sum * 3 + shared_load(stages + i % 3 * 256 + (me * 4 + 32 * 4 + j) % 256);
    }
    if (WHAT == COPIES_LEFT)
        copy16(stages + me * 4, x + me * 4);
    y[me] = sum;
}

template <int WHAT>
static void copies_case(const char *fault = nullptr) {
    Kernel k("copies", copies_kernel<WHAT>, [](lathe_ref *r) {
        const u32 *x = static_cast<const u32 *>(lathe_ref_data(r, 0, "x"));
        for (int me = 0; me < 64; me++) {
            u32 sum = 0;
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 4; j++)
                    sum = sum * 3 + x[i * 256 + (me * 4 + 128 + j) % 256];
            lathe_ref_out(r, 0, "y")[me] = sum;
        }
    });
    k.in("x", {8, 256}).integers(0, 1000);
    k.out("y", {64});
    k.launch({2}, 64, 3 * 1024);
    if (fault)
        k.fails(fault);
    else if (WHAT != COPIES_WAITED)
        k.any_seed_differs();
    else
        k.seeds(10);
    k.run();
}

static void test_copies() {
    copies_case<COPIES_WAITED>();
    copies_case<COPIES_TOO_FEW>();
    copies_case<COPIES_NO_BARRIER>();
    copies_case<COPIES_LEFT>("ended while 1 of its copies were on their way");
    copies_case<COPIES_ODD>("both must be multiples of 16");
}

enum { MET, NOT_MET, NOT_WAITED, TOO_FAR };

// Warp w of block b sends 100 b + w, plus its lane, to lane's block; every block adds what it got.
template <int WHAT>
__device__ void cluster_kernel(float *y) {
    u64 *arrived = reinterpret_cast<u64 *>(dynamic_shared());
    float *words = reinterpret_cast<float *>(dynamic_shared() + 16);
    const u32 mine = block_id() % 4;
    if (thread_id() == 0) {
        mbar_init(arrived, 1);
        mbar_init_fence();
        mbar_expect(arrived, 4 * 2 * 4);
    }
    if (WHAT != NOT_MET)
        cluster_sync();
    if (lane_id() < 4)
        cluster_send(lane_id() + (WHAT == TOO_FAR ? 1 : 0), words + mine * 2 + warp_id(),
                     static_cast<float>(block_id() * 100 + warp_id() * 10 + lane_id()), arrived);
    if (WHAT != NOT_WAITED)
        cluster_wait(arrived, 0);
    float sum = 0;
    for (int i = 0; i < 8; i++)
        sum += shared_load(words + i);
    y[block_id() * 64 + thread_id()] = sum;
    if (WHAT == NOT_WAITED)
        cluster_wait(arrived, 0); // else a block ends while words are on their way to it
}

template <int WHAT>
static void cluster_case(const char *fault = nullptr) {
    Kernel k("cluster", cluster_kernel<WHAT>, [](lathe_ref *r) {
        for (int i = 0; i < 3 * 4 * 64; i++) {
            double sum = 0;
            for (int b = 0; b < 4; b++)
                for (int w = 0; w < 2; w++)
                    sum += (i / 256 * 4 + b) * 100 + w * 10 + i / 64 % 4;
            lathe_ref_out(r, 0, "y")[i] = sum;
        }
    });
    k.out("y", {3 * 4 * 64});
    k.launch({3 * 4}, 64, 16 + 8 * 4);
    k.cluster(4);
    if (fault)
        k.fails(fault);
    else if (WHAT != MET)
        k.any_seed_differs();
    else
        k.seeds(10);
    k.run();
}

// The last block never comes.
__device__ static void cluster_short_kernel(u32 *y) {
    if (block_id() != 1)
        cluster_sync();
    y[block_id()] = 1;
}

static void test_cluster() {
    cluster_case<MET>();
    cluster_case<NOT_MET>();
    cluster_case<NOT_WAITED>();
    cluster_case<TOO_FAR>("cluster_send to block 4 of a cluster of 4");
    Kernel k("a block that does not come", cluster_short_kernel, nullptr);
    k.out("y", {2});
    k.launch({2}, 32, 0);
    k.cluster(2);
    k.fails("cluster_sync (32 of 64 threads are there)");
    k.run();
}

int main() {
    test_warp();
    test_transposed();
    test_warp_faults();
    test_block();
    test_bulk();
    test_copies();
    test_cluster();
    return finish("prims");
}
