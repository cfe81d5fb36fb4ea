// SPDX-License-Identifier: Apache-2.0
// What a block of attention over the paged cache does, wherever its queries come from: `From` is
// PagedTensors (attention/paged) or PagedProduct (attention/front_paged), for which there are
//     paged_row    a lane's channels of a query
//     paged_gate   four channels of a gate
//     paged_old    how many of a chunk's keys the cache holds when the launch may read it
//     paged_renew  puts the others in
//
// A block serves one split of the visible keys for one slice (kTiles * 16 query rows) of one kv
// head of one request. Its warps take turns at chunks of 16 keys; each keeps its own softmax state,
// so the main loop has no barrier. Keys and values go from the cache straight to tensor-core
// fragments: a product's inner index may be permuted, so every lane loads 16 bytes at a time. In
// the end the warps are folded, and the block that arrives last folds the splits; both in ascending
// order, so the bits do not depend on who was last.
//
// Query rows of a kv head are ordered query * group + head. Scores are kept in powers of two.
#ifndef LATHE_ATTENTION_PAGED_BLOCK_CUH
#define LATHE_ATTENTION_PAGED_BLOCK_CUH

#include "attention/paged_tile.cuh"

template <class C>
struct PagedShape {
    static constexpr int kQ = C::kRows / C::kRequests;
    static constexpr int kGroup = C::kHeads / C::kKvHeads;
    static constexpr int kQueries = kQ * kGroup; // query rows of a kv head
    static constexpr int kSliceRows = 16 * C::kTiles;
    static constexpr int kSlices = (kQueries + kSliceRows - 1) / kSliceRows;
    static constexpr int kStride =
        C::kDim + 4; // floats of a row in shared memory, against conflicts
    static constexpr int kQuads = C::kDim / 4; // lanes of a row where a lane owns four channels
    static constexpr int kAhead =
        C::kTiles * C::kDim > 64 ? 1 : 2; // chunks of a warp that are under way
};

// What one block does. Chunks are numbered from the start of the context.
struct PagedWork {
    int request, kv_head, slice, length; // length: keys of the request
    int live, split;                     // splits that take part; this block's
    int chunk, chunk_end;                // of the block's first warp
    int begin;                           // first chunk that some query sees
};

// Chunks from one of a warp's turns to its next.
template <class C>
__device__ __forceinline__ constexpr int paged_turn() {
    return C::kAnchored != 0 ? C::kWarps * C::kSplits : C::kWarps;
}

// Divides the visible chunks among the splits by whole rounds of the block's warps. Anchored splits
// take turns as their warps do, and all take part whether they have keys or not: a warp or a split
// without any adds nothing to a sum.
template <class C>
__device__ __forceinline__ PagedWork paged_divide(const int *seq_lens) {
    using Shape = PagedShape<C>;
    PagedWork work;
    work.request = (int)block_id_z();
    work.kv_head = (int)block_id_y() / Shape::kSlices;
    work.slice = (int)block_id_y() % Shape::kSlices;
    work.split = (int)block_id();
    work.length = seq_lens[work.request];
    const int first_key = C::kWindow > 0 ? work.length - Shape::kQ - C::kWindow + 1 : 0;
    const int begin = first_key > 0 ? first_key / kPagedChunk : 0;
    const int end = work.length > 0 ? (work.length + kPagedChunk - 1) / kPagedChunk : 0;
    work.begin = begin;
    if constexpr (C::kAnchored != 0) {
        work.live = end > 0 ? C::kSplits : 0;
        work.chunk = begin - begin % paged_turn<C>() + work.split * C::kWarps;
        work.chunk_end = end;
        return work;
    }
    const int rounds = (end - begin + C::kWarps - 1) / C::kWarps;
    work.live = rounds < C::kSplits ? rounds : C::kSplits;
    const int each = rounds / C::kSplits;
    const int more = rounds % C::kSplits; // splits that have one round more
    const int before = work.split * each + (work.split < more ? work.split : more);
    const int after = before + each + (work.split < more ? 1 : 0);
    work.chunk = begin + before * C::kWarps;
    work.chunk_end = begin + after * C::kWarps;
    if (work.chunk_end > end)
        work.chunk_end = end;
    return work;
}

// Index of [row of the step, head] of query row `query` of this kv head.
template <class C>
__device__ __forceinline__ int paged_head(const PagedWork &work, int query) {
    using Shape = PagedShape<C>;
    const int row = work.request * Shape::kQ + query / Shape::kGroup;
    return row * C::kHeads + work.kv_head * Shape::kGroup + query % Shape::kGroup;
}

template <class C, class From>
__device__ __forceinline__ void paged_load_queries(PagedQueries<C::kDim> &tile, int number,
                                                   const PagedWork &work, const From &from) {
    using Shape = PagedShape<C>;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query = work.slice * Shape::kSliceRows + number * 16 + (int)lane_id() / 4 + 8 * r;
        const bool exists = query < Shape::kQueries;
        const int position = work.length - Shape::kQ + query / Shape::kGroup;
        const int at = paged_head<C>(work, exists ? query : 0);
        u32 words[C::kDim / 8];
        paged_row(words, from, at / C::kHeads, at % C::kHeads);
        paged_start_row<C::kDim>(tile, r, words, exists ? position : -1);
    }
}

// The warp's first chunk.
template <class C>
__device__ __forceinline__ int paged_first(const PagedWork &work) {
    const int chunk = work.chunk + (int)warp_id();
    return chunk < work.begin ? chunk + paged_turn<C>() : chunk;
}

// Loads chunk number `turn` of the warp whose first is `first`. The pages of 32 turns are read at
// once, one a lane.
template <class C, class From>
__device__ __forceinline__ void paged_fetch(PagedKeys<C::kDim> &keys, int &pages, int first,
                                            int turn, int turns, const PagedWork &work,
                                            const From &from, const int *table) {
    constexpr int kPageChunks = C::kPageTokens / kPagedChunk;
    const int chunk = first + turn * paged_turn<C>();
    if (turn % 32 == 0 && turn + (int)lane_id() < turns)
        pages = table[(chunk + (int)lane_id() * paged_turn<C>()) / kPageChunks];
    const i64 page = warp_shuffle(pages, (u32)turn % 32);
    const i64 token =
        (page * C::kKvHeads + work.kv_head) * C::kPageTokens + chunk % kPageChunks * kPagedChunk;
    paged_load_keys<C::kDim>(
        keys, from.cache + token * C::kPacked,
        paged_old(from, work.length - PagedShape<C>::kQ - chunk * kPagedChunk));
}

// A warp's share of the block's chunks, and the first of them on their way.
template <class C>
struct PagedWalk {
    int first, turns, pages;
    PagedKeys<C::kDim> ahead[PagedShape<C>::kAhead];
};

template <class C, class From>
__device__ __forceinline__ void paged_set_out(PagedWalk<C> &walk, const PagedWork &work,
                                              const From &from, const int *table) {
    walk.first = paged_first<C>(work);
    walk.turns = (work.chunk_end - walk.first + paged_turn<C>() - 1) / paged_turn<C>();
    walk.pages = 0;
#pragma unroll
    for (int i = 0; i < PagedShape<C>::kAhead; i++)
        if (i < walk.turns)
            paged_fetch<C>(walk.ahead[i], walk.pages, walk.first, i, walk.turns, work, from, table);
}

// The next chunk, number `turn`; the one kAhead later sets out.
template <class C, class From>
__device__ __forceinline__ void paged_next(PagedKeys<C::kDim> &keys, PagedWalk<C> &walk, int turn,
                                           const PagedWork &work, const From &from,
                                           const int *table) {
    constexpr int kAhead = PagedShape<C>::kAhead;
    keys = walk.ahead[0];
#pragma unroll
    for (int i = 1; i < kAhead; i++)
        walk.ahead[i - 1] = walk.ahead[i];
    if (turn + kAhead < walk.turns)
        paged_fetch<C>(walk.ahead[kAhead - 1], walk.pages, walk.first, turn + kAhead, walk.turns,
                       work, from, table);
}

// Walks on to the end.
template <class C, class From>
__device__ __forceinline__ void paged_walk(PagedQueries<C::kDim> (&tiles)[C::kTiles],
                                           PagedWalk<C> &walk, const PagedWork &work,
                                           const From &from, const int *table) {
    constexpr int kQ = PagedShape<C>::kQ;
    for (int turn = 0; turn < walk.turns; turn++) {
        PagedKeys<C::kDim> keys;
        paged_next<C>(keys, walk, turn, work, from, table);
        const int key = (walk.first + turn * paged_turn<C>()) * kPagedChunk;
        const int fresh = work.length - kQ - key; // the chunk's first key of this step
        if (fresh < kPagedChunk)
            paged_renew(keys, from, work.request * kQ, work.kv_head, work.slice == 0, -fresh, kQ);
        bool edge = key + kPagedChunk > work.length - kQ + 1; // some query does not see some key
        if constexpr (C::kWindow > 0)
            edge = edge || key < work.length - C::kWindow;
        const u32 spoilt = edge ? paged_hide_spoilt<C::kDim>(keys) : 0u;
        paged_pair_values<C::kDim>(keys);
#pragma unroll
        for (int t = 0; t < C::kTiles; t++)
            paged_attend<C>(tiles[t], keys, key, edge, spoilt);
    }
}

// Result of a row over some keys: four channels of the weighted sum of values, unnormalised.
struct PagedPartial {
    float top, sum; // largest score, sum of weights relative to it
    f32x4 o;
};

// Adds `count` <= kMany results of the row to what it has so far, in their order. The results come
// in registers, so that they were loaded together.
template <int kMany>
__device__ __forceinline__ void paged_fold(PagedPartial &a, const f32x2 (&top_sum)[kMany],
                                           const f32x4 (&o)[kMany], int count) {
    float top = a.top;
#pragma unroll
    for (int i = 0; i < kMany; i++)
        if (i < count)
            top = max_f32(top, top_sum[i].x);
    const float base = paged_base(top);
    const float before = exp2_f32(a.top - base);
    a.top = top;
    a.sum *= before;
    a.o = {a.o.x * before, a.o.y * before, a.o.z * before, a.o.w * before};
#pragma unroll
    for (int i = 0; i < kMany; i++) {
        if (i >= count)
            continue;
        const float y = exp2_f32(top_sum[i].x - base);
        a.sum += top_sum[i].y * y;
        a.o = {a.o.x + o[i].x * y, a.o.y + o[i].y * y, a.o.z + o[i].z * y, a.o.w + o[i].w * y};
    }
}

// Folds what the block's warps left of one of its rows.
template <class C>
__device__ __forceinline__ PagedPartial paged_fold_warps(int row, int quad, const float *outputs,
                                                         const f32x2 *sums) {
    using Shape = PagedShape<C>;
    PagedPartial total = {paged_infinity(-1), 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    f32x2 top_sum[C::kWarps];
    f32x4 o[C::kWarps];
#pragma unroll
    for (int warp = 0; warp < C::kWarps; warp++) {
        const int at = warp * Shape::kSliceRows + row;
        top_sum[warp] = shared_load(sums + at);
        o[warp] = shared_load((const f32x4 *)(outputs + at * Shape::kStride) + quad);
    }
    paged_fold<C::kWarps>(total, top_sum, o, C::kWarps);
    return total;
}

// Four channels of a query row's gate.
template <class C, class From>
__device__ __forceinline__ u32x2 paged_query_gate(const PagedWork &work, int query, int quad,
                                                  const From &from) {
    const int at = paged_head<C>(work, query < PagedShape<C>::kQueries ? query : 0);
    return paged_gate(from, at / C::kHeads, at % C::kHeads, quad * 4);
}

// Normalises, applies o-norm and gate and writes four channels. Called by whole warps: a row's
// lanes share its mean square. A row that saw no key is zero whatever its gate.
template <class C>
__device__ __forceinline__ void paged_finish(const PagedWork &work, int query, int quad,
                                             const PagedPartial &total, u32x2 g, bf16 *y) {
    using Shape = PagedShape<C>;
    const float share = total.sum == 0.0f ? 0.0f : divide_f32(1.0f, total.sum);
    const float o[4] = {total.o.x * share, total.o.y * share, total.o.z * share, total.o.w * share};
    float square = o[0] * o[0] + o[1] * o[1] + o[2] * o[2] + o[3] * o[3];
    for (u32 mask = Shape::kQuads / 2; mask > 0; mask /= 2)
        square += warp_shuffle_xor(square, mask);
    if (query >= Shape::kQueries)
        return;
    const float norm = rsqrt_f32(square / (float)C::kDim + (float)C::kEps);
    const int at = paged_head<C>(work, query) * C::kDim + quad * 4;
    u32x2 out = {pack_bf16(o[0] * norm * sigmoid_f32(bf16_low(g.x)),
                           o[1] * norm * sigmoid_f32(bf16_high(g.x))),
                 pack_bf16(o[2] * norm * sigmoid_f32(bf16_low(g.y)),
                           o[3] * norm * sigmoid_f32(bf16_high(g.y)))};
    if (total.sum == 0.0f)
        out = {0u, 0u};
    *(u32x2 *)(y + at) = out;
}

template <class C>
__device__ __forceinline__ void paged_write_zeros(const PagedWork &work, bf16 *y) {
    using Shape = PagedShape<C>;
    for (int i = (int)thread_id(); i < Shape::kSliceRows * Shape::kQuads; i += C::kWarps * 32) {
        const int query = work.slice * Shape::kSliceRows + i / Shape::kQuads;
        if (query < Shape::kQueries)
            *(u32x2 *)(y + paged_head<C>(work, query) * C::kDim + i % Shape::kQuads * 4) = {0u, 0u};
    }
}

// Whether this block is the last of its slice to arrive; whoever is leaves the counter at zero.
template <class C>
__device__ __forceinline__ bool paged_is_last(const PagedWork &work, u32 *counters, u32 *flag) {
    gpu_fence();
    block_sync();
    if (thread_id() == 0) {
        u32 *counter = counters +
                       (work.request * C::kKvHeads + work.kv_head) * PagedShape<C>::kSlices +
                       work.slice;
        const u32 last = gpu_atomic_add(counter, 1u) == (u32)work.live - 1u ? 1u : 0u;
        if (last != 0u)
            gpu_store(counter, 0u);
        shared_store(flag, last);
    }
    block_sync();
    const bool last = shared_load(flag) != 0u;
    if (last)
        gpu_fence();
    return last;
}

// Folds what the splits left of one row, kMany results under way together.
template <class C>
__device__ __forceinline__ PagedPartial paged_fold_splits(int head, int quad, int live,
                                                          const float *partial_o,
                                                          const float *partial_sums) {
    constexpr int kMany = C::kSplits < 16 ? C::kSplits : 16;
    PagedPartial total = {paged_infinity(-1), 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    for (int first = 0; first < live; first += kMany) {
        f32x2 top_sum[kMany];
        f32x4 o[kMany];
#pragma unroll
        for (int i = 0; i < kMany; i++) {
            const int split = first + i < live ? first + i : live - 1;
            const int at = split * (C::kRows * C::kHeads) + head;
            top_sum[i] = gpu_load((const f32x2 *)partial_sums + at);
            o[i] = gpu_load((const f32x4 *)(partial_o + (i64)at * C::kDim) + quad);
        }
        paged_fold<kMany>(total, top_sum, o, live - first);
    }
    return total;
}

// The block's whole work. `walk` has set out; before this comes grid_wait().
template <class C, class From>
__device__ __forceinline__ void paged_block(const PagedWork &work, PagedWalk<C> &walk,
                                            const From &from, const int *table, bf16 *y,
                                            float *partial_o, float *partial_sums, u32 *counters) {
    using Shape = PagedShape<C>;
    if (work.split >= work.live) {
        if (work.split == 0)
            paged_write_zeros<C>(work, y);
        return;
    }
    PagedQueries<C::kDim> tiles[C::kTiles];
#pragma unroll
    for (int t = 0; t < C::kTiles; t++)
        paged_load_queries<C>(tiles[t], t, work, from);
    paged_walk<C>(tiles, walk, work, from, table);

    // Per warp and row: channels in `outputs`, largest score and sum of weights in `sums`.
    float *outputs = (float *)dynamic_shared();
    f32x2 *sums = (f32x2 *)(outputs + C::kWarps * Shape::kSliceRows * Shape::kStride);
    u32 *flag = (u32 *)(sums + C::kWarps * Shape::kSliceRows);
#pragma unroll
    for (int t = 0; t < C::kTiles; t++) {
        const int row = (int)warp_id() * Shape::kSliceRows + t * 16 + (int)lane_id() / 4;
        paged_leave<C::kDim>(tiles[t], outputs + row * Shape::kStride, sums + row, Shape::kStride);
    }
    block_sync();

    const int first_query = work.slice * Shape::kSliceRows;
    for (int i = (int)thread_id(); i < Shape::kSliceRows * Shape::kQuads; i += C::kWarps * 32) {
        const int row = i / Shape::kQuads;
        const int quad = i % Shape::kQuads;
        const PagedPartial total = paged_fold_warps<C>(row, quad, outputs, sums);
        if (work.live == 1) {
            const u32x2 gate = paged_query_gate<C>(work, first_query + row, quad, from);
            paged_finish<C>(work, first_query + row, quad, total, gate, y);
        } else if (first_query + row < Shape::kQueries) {
            const int at =
                work.split * (C::kRows * C::kHeads) + paged_head<C>(work, first_query + row);
            gpu_store((f32x4 *)(partial_o + (i64)at * C::kDim) + quad, total.o);
            if (quad == 0)
                gpu_store((f32x2 *)partial_sums + at, f32x2{total.top, total.sum});
        }
    }
    if (work.live == 1 || !paged_is_last<C>(work, counters, flag))
        return;
    for (int i = (int)thread_id(); i < Shape::kSliceRows * Shape::kQuads; i += C::kWarps * 32) {
        const int query = first_query + i / Shape::kQuads;
        const int quad = i % Shape::kQuads;
        const int known = query < Shape::kQueries ? query : Shape::kQueries - 1;
        const u32x2 gate = paged_query_gate<C>(work, query, quad, from);
        const PagedPartial total = paged_fold_splits<C>(paged_head<C>(work, known), quad, work.live,
                                                        partial_o, partial_sums);
        paged_finish<C>(work, query, quad, total, gate, y);
    }
}

template <class C>
__device__ __forceinline__ void paged_check() {
    static_assert(C::kHeads % C::kKvHeads == 0, "every kv head serves as many query heads");
    static_assert(C::kRows % C::kRequests == 0, "every request has as many rows");
    static_assert(C::kPageTokens % kPagedChunk == 0, "a page holds whole chunks of 16 keys");
    static_assert(C::kPacked == 2 * C::kDim, "a cache row is k, v");
    static_assert(C::kOut == C::kHeads * C::kDim, "y holds every head");
    static_assert(C::kMaxContext <= C::kTableWidth * C::kPageTokens, "the table holds the context");
    static_assert(C::kSlices == PagedShape<C>::kSlices, "one counter a slice");
}

#endif
