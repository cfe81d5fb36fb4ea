// SPDX-License-Identifier: Apache-2.0
// What a block of attention over the paged cache does, wherever its queries come from: `From` is
// PagedTensors (attention/paged) or PagedProduct (attention/front_paged), for which there are
//     paged_row    a lane's channels of a query
//     paged_gate   four channels of a gate
//     paged_old    how many of a chunk's keys the cache holds when the launch may read it
//     paged_renew  puts the others in
//
// A block serves one split of the visible keys for one slice (kTiles * 16 query rows) of one kv
// head of one request. kTeams teams of kTiles warps take turns at chunks of keys; every warp of a
// team has a tile of the query rows of its own. A team's chunks come by asynchronous copies through
// a ring in shared memory, so registers hold no keys on their way. Each warp keeps its own softmax
// state. In the end the teams are folded; then the blocks of a cluster, each of which gets a share
// of the rows; then, where the splits are more than a cluster, what the clusters left, by the block
// that arrives last. All in ascending order, so the bits do not depend on who was last.
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
    static constexpr int kUnits = C::kChunk / kPagedUnit;
    static constexpr int kChunkBytes = C::kChunk * 4 * C::kDim;
    static constexpr int kQuads = C::kDim / 4; // lanes of a row where a lane owns four channels
    static constexpr int kOwnRows = kSliceRows / C::kCluster; // of a block in the cluster's fold
    // Lanes of these rows, in whole warps.
    static constexpr int kOwnLanes = (kOwnRows * kQuads + 31) / 32 * 32;
    // Shared memory: the ring, whose place the warps' results take; what the cluster's blocks send,
    // sixteen bytes for a quad and for a row's sums; an mbarrier for that; a flag.
    static constexpr int kStride = C::kDim + 8; // floats of a row, against conflicts
    static constexpr int kRingBytes = C::kTeams * C::kStages * kChunkBytes;
    static constexpr int kLeftBytes = C::kWarps * 16 * (kStride * 4 + 8);
    static constexpr int kSentAt = kRingBytes > kLeftBytes ? kRingBytes : kLeftBytes;
    static constexpr int kSentBytes = C::kCluster > 1 ? C::kCluster *kOwnRows *(kQuads + 1) * 16
                                                      : 0;
};

// What one block does. Chunks are numbered from the start of the context.
struct PagedWork {
    int request, kv_head, slice, length; // length: keys of the request
    int live, split;                     // splits that take part; this block's
    int chunk, chunk_end;                // of the block's first team
    int begin;                           // first chunk that some query sees
    int first_key;                       // that some query sees
};

// Chunks from one of a team's turns to its next.
template <class C>
__device__ __forceinline__ constexpr int paged_turn() {
    return C::kAnchored != 0 ? C::kTeams * C::kSplits : C::kTeams;
}

// Divides the visible chunks among the splits by whole rounds of the block's teams. Anchored splits
// take turns as their teams do, and all take part whether they have keys or not: a team or a split
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
    work.first_key = first_key > 0 ? first_key : 0;
    const int begin = work.first_key / C::kChunk;
    const int end = work.length > 0 ? (work.length + C::kChunk - 1) / C::kChunk : 0;
    work.begin = begin;
    if constexpr (C::kAnchored != 0) {
        work.live = end > 0 ? C::kSplits : 0;
        work.chunk = begin - begin % paged_turn<C>() + work.split * C::kTeams;
        work.chunk_end = end;
        return work;
    }
    const int rounds = (end - begin + C::kTeams - 1) / C::kTeams;
    work.live = rounds < C::kSplits ? rounds : C::kSplits;
    const int each = rounds / C::kSplits;
    const int more = rounds % C::kSplits; // splits that have one round more
    const int before = work.split * each + (work.split < more ? work.split : more);
    const int after = before + each + (work.split < more ? 1 : 0);
    work.chunk = begin + before * C::kTeams;
    work.chunk_end = begin + after * C::kTeams;
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

template <class C>
__device__ __forceinline__ int paged_team() {
    return (int)warp_id() / C::kTiles;
}
// The number of the warp among its team's, and of its tile among the slice's.
template <class C>
__device__ __forceinline__ int paged_member() {
    return (int)warp_id() % C::kTiles;
}

template <class C>
__device__ __forceinline__ void paged_team_sync() {
    if constexpr (C::kTiles == 1)
        warp_sync();
    else
        block_sync_named((u32)(1 + paged_team<C>()), C::kTiles * 32);
}

template <class C, class From>
__device__ __forceinline__ void paged_load_queries(PagedQueries<C::kDim> &tile,
                                                   const PagedWork &work, const From &from) {
    using Shape = PagedShape<C>;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query =
            work.slice * Shape::kSliceRows + paged_member<C>() * 16 + (int)lane_id() / 4 + 8 * r;
        const bool exists = query < Shape::kQueries;
        const int position = work.length - Shape::kQ + query / Shape::kGroup;
        const int at = paged_head<C>(work, exists ? query : 0);
        u32 words[C::kDim / 8];
        paged_row(words, from, at / C::kHeads, at % C::kHeads);
        paged_start_row<C::kDim>(tile, r, words, exists ? position : -1);
    }
}

// A team's share of the block's chunks: the first one's number, how many there are; pages of 32 of
// its units, one a lane, and, where there may be many, of the 32 after.
struct PagedWalk {
    int first, turns, pages, later;
};

// Pages of the team's units from number 32 * batch on. A unit without visible keys has none.
template <class C>
__device__ __forceinline__ int paged_pages(const PagedWalk &walk, int batch, const PagedWork &work,
                                           const int *table) {
    constexpr int kUnits = PagedShape<C>::kUnits;
    const int number = batch * 32 + (int)lane_id();
    const int key =
        (walk.first + number / kUnits * paged_turn<C>()) * C::kChunk + number % kUnits * kPagedUnit;
    const bool is_visible =
        number < walk.turns * kUnits && key < work.length && key + kPagedUnit > work.first_key;
    return is_visible ? table[key / C::kPageTokens] : 0;
}

// A lane's copies of a unit: its first row, the elements from the unit's page 0 to its piece of
// that row, the place of the piece in a chunk.
template <class C>
struct PagedCopies {
    static constexpr int kPieces = C::kDim / 4;                   // of a row
    static constexpr int kStep = C::kTiles * 32 / kPieces;        // rows to the lane's next
    static constexpr int kOwn = (kPagedUnit + kStep - 1) / kStep; // copies of a unit
    static constexpr int kPage = C::kKvHeads * C::kPageTokens * C::kPacked;
    int offset, place;
};

template <class C>
__device__ __forceinline__ PagedCopies<C> paged_copies(const PagedWork &work) {
    const int number = paged_member<C>() * 32 + (int)lane_id();
    const int row = number / PagedCopies<C>::kPieces, piece = number % PagedCopies<C>::kPieces;
    const int offset = (work.kv_head * C::kPageTokens + row) * C::kPacked + piece * 8;
    return {offset, (int)keep_register((u32)paged_place<C::kDim>(row, piece))};
}

// Asks for chunk number `turn` of the team, each warp for its part. Rows that this launch makes,
// and units that no query sees, are left as they are.
template <class C, class From>
__device__ __forceinline__ void paged_fetch(u8 *chunk, PagedWalk &walk, int turn,
                                            const PagedCopies<C> &copies, const PagedWork &work,
                                            const From &from, const int *table) {
    using Shape = PagedShape<C>;
    using Copies = PagedCopies<C>;
    if (turn > 0 && turn * Shape::kUnits % 32 == 0) {
        const int batch = turn * Shape::kUnits / 32;
        walk.pages = C::kWindow > 0 ? paged_pages<C>(walk, batch, work, table) : walk.later;
        if constexpr (C::kWindow == 0)
            walk.later = paged_pages<C>(walk, batch + 1, work, table);
    }
#pragma unroll
    for (int u = 0; u < Shape::kUnits; u++) {
        const int page = warp_shuffle(walk.pages, (u32)(turn * Shape::kUnits + u) % 32);
        const int key = (walk.first + turn * paged_turn<C>()) * C::kChunk + u * kPagedUnit;
        if (key >= work.length || (C::kWindow > 0 && key + kPagedUnit <= work.first_key))
            continue;
        const bf16 *const rows = from.cache + (i64)page * Copies::kPage + copies.offset +
                                 key % C::kPageTokens * C::kPacked;
        const int count = paged_old(from, work.length - Shape::kQ - key);
        const int row = (int)((u32)copies.place / (4 * C::kDim));
#pragma unroll
        for (int i = 0; i < Copies::kOwn; i++) {
            const int more = i * Copies::kStep; // rows; its bits are none of the first row's
            if (row < count - more && row < kPagedUnit - more)
                copy16(chunk + (copies.place ^ paged_trade<C::kDim>(more)) +
                           (u * kPagedUnit + more) * 4 * C::kDim,
                       rows + more * C::kPacked);
        }
    }
}

// The team's ring.
template <class C>
__device__ __forceinline__ u8 *paged_ring() {
    return dynamic_shared() + paged_team<C>() * C::kStages * PagedShape<C>::kChunkBytes;
}

// The team's first chunks on their way.
template <class C, class From>
__device__ __forceinline__ void paged_set_out(PagedWalk &walk, const PagedWork &work,
                                              const From &from, const int *table) {
    const int chunk = work.chunk + paged_team<C>();
    walk.first = chunk < work.begin ? chunk + paged_turn<C>() : chunk;
    walk.turns = (work.chunk_end - walk.first + paged_turn<C>() - 1) / paged_turn<C>();
    walk.pages = paged_pages<C>(walk, 0, work, table);
    walk.later = C::kWindow == 0 ? paged_pages<C>(walk, 1, work, table) : 0;
    const PagedCopies<C> copies = paged_copies<C>(work);
#pragma unroll 1
    for (int i = 0; i < C::kStages - 1; i++) {
        if (i < walk.turns)
            paged_fetch<C>(paged_ring<C>() + i * PagedShape<C>::kChunkBytes, walk, i, copies, work,
                           from, table);
        copy_commit();
    }
}

// Walks on to the end.
template <class C, class From>
__device__ __forceinline__ void paged_walk(PagedQueries<C::kDim> &tile, PagedWalk &walk,
                                           const PagedWork &work, const From &from,
                                           const int *table) {
    using Shape = PagedShape<C>;
    constexpr int kQ = Shape::kQ;
    const PagedCopies<C> copies = paged_copies<C>(work);
    const PagedLane lane = paged_lane<C::kDim>();
    u8 *chunk = paged_ring<C>();
    u8 *before = chunk + (C::kStages - 1) * Shape::kChunkBytes; // the chunk of the turn before
    int stage = 0;                                              // turn % kStages
#pragma unroll 1
    for (int turn = 0; turn < walk.turns; turn++) {
        copy_wait<C::kStages - 2>();
        paged_team_sync<C>(); // the chunk is here, and nobody reads the one before it any more
        if (turn + C::kStages - 1 < walk.turns)
            paged_fetch<C>(before, walk, turn + C::kStages - 1, copies, work, from, table);
        copy_commit();
        const int key = (walk.first + turn * paged_turn<C>()) * C::kChunk;
        const int fresh = work.length - kQ - key; // the chunk's first key of this step
        if (fresh < C::kChunk) {
            paged_renew(chunk, from, work.request * kQ, work.kv_head, work.slice == 0, -fresh, kQ,
                        paged_member<C>());
            paged_team_sync<C>();
        }
        bool edge = key + C::kChunk > work.length - kQ + 1; // some query does not see some key
        if constexpr (C::kWindow > 0)
            edge = edge || key < work.length - C::kWindow;
        paged_attend<C>(tile, chunk, lane, key, edge);
        before = chunk;
        stage = stage == C::kStages - 1 ? 0 : stage + 1;
        chunk =
            stage == 0 ? chunk - (C::kStages - 1) * Shape::kChunkBytes : chunk + Shape::kChunkBytes;
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

// Folds what the block's teams left of one of its rows.
template <class C>
__device__ __forceinline__ PagedPartial paged_fold_teams(int row, int quad, const float *outputs,
                                                         const f32x2 *sums) {
    using Shape = PagedShape<C>;
    PagedPartial total = {paged_infinity(-1), 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    f32x2 top_sum[C::kTeams];
    f32x4 o[C::kTeams];
#pragma unroll
    for (int team = 0; team < C::kTeams; team++) {
        const int at = team * Shape::kSliceRows + row;
        top_sum[team] = shared_load(sums + at);
        o[team] = shared_load((const f32x4 *)(outputs + at * Shape::kStride) + quad);
    }
    paged_fold<C::kTeams>(total, top_sum, o, C::kTeams);
    return total;
}

// What the block's rows came to goes to the blocks of the cluster, to each its share of the rows.
template <class C>
__device__ __forceinline__ void paged_send(const PagedWork &work, const float *outputs,
                                           const f32x2 *sums, f32x4 *sent, u64 *arrived) {
    using Shape = PagedShape<C>;
    for (int i = (int)thread_id(); i < Shape::kSliceRows * Shape::kQuads; i += C::kWarps * 32) {
        const int row = i / Shape::kQuads;
        const int quad = i % Shape::kQuads;
        const PagedPartial total = paged_fold_teams<C>(row, quad, outputs, sums);
        const u32 owner = (u32)(row / Shape::kOwnRows);
        f32x4 *const to =
            sent + (work.split % C::kCluster * Shape::kOwnRows + row % Shape::kOwnRows) *
                       (Shape::kQuads + 1);
        cluster_send16(owner, to + quad, total.o, arrived);
        if (quad == 0)
            cluster_send16(owner, to + Shape::kQuads, f32x4{total.top, total.sum, 0.0f, 0.0f},
                           arrived);
    }
}

// Folds what the cluster's blocks sent of one of this block's rows.
template <class C>
__device__ __forceinline__ PagedPartial paged_fold_cluster(int own, int quad, const f32x4 *sent) {
    using Shape = PagedShape<C>;
    PagedPartial total = {paged_infinity(-1), 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    f32x2 top_sum[C::kCluster];
    f32x4 o[C::kCluster];
#pragma unroll
    for (int block = 0; block < C::kCluster; block++) {
        const f32x4 *const from = sent + (block * Shape::kOwnRows + own) * (Shape::kQuads + 1);
        const f32x4 both = shared_load(from + Shape::kQuads);
        top_sum[block] = {both.x, both.y};
        o[block] = shared_load(from + quad);
    }
    paged_fold<C::kCluster>(total, top_sum, o, C::kCluster);
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

// Whether this block is the last of `parts` with its rows to arrive; whoever is leaves the counter
// at zero.
template <class C>
__device__ __forceinline__ bool paged_is_last(const PagedWork &work, int parts, u32 *counters,
                                              u32 *flag) {
    gpu_fence();
    block_sync();
    if (thread_id() == 0) {
        const int slice =
            (work.request * C::kKvHeads + work.kv_head) * PagedShape<C>::kSlices + work.slice;
        u32 *const counter = counters + slice * C::kCluster + work.split % C::kCluster;
        const u32 last = gpu_atomic_add(counter, 1u) == (u32)parts - 1u ? 1u : 0u;
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

// Folds `parts` results of one row, kMany of them under way together.
template <class C>
__device__ __forceinline__ PagedPartial paged_fold_parts(int head, int quad, int parts,
                                                         const float *partial_o,
                                                         const float *partial_sums) {
    constexpr int kMany = C::kParts < 16 ? C::kParts : 16;
    PagedPartial total = {paged_infinity(-1), 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
    for (int first = 0; first < parts; first += kMany) {
        f32x2 top_sum[kMany];
        f32x4 o[kMany];
#pragma unroll
        for (int i = 0; i < kMany; i++) {
            const int part = first + i < parts ? first + i : parts - 1;
            const int at = part * (C::kRows * C::kHeads) + head;
            top_sum[i] = gpu_load((const f32x2 *)partial_sums + at);
            o[i] = gpu_load((const f32x4 *)(partial_o + (i64)at * C::kDim) + quad);
        }
        paged_fold<kMany>(total, top_sum, o, parts - first);
    }
    return total;
}

// The rows of the slice that this block folds, four channels a lane. A lane beyond them has the
// query kQueries.
struct PagedOwn {
    int own, row, query, quad; // the row among these, in the slice, of the kv head
};

template <class C>
__device__ __forceinline__ PagedOwn paged_own(const PagedWork &work, int i) {
    using Shape = PagedShape<C>;
    PagedOwn at;
    const bool exists = i < Shape::kOwnRows * Shape::kQuads;
    at.own = exists ? i / Shape::kQuads : 0;
    at.row = work.split % C::kCluster * Shape::kOwnRows + at.own;
    at.query = work.slice * Shape::kSliceRows + at.row;
    at.quad = i % Shape::kQuads;
    if (!exists || at.query > Shape::kQueries)
        at.query = Shape::kQueries;
    return at;
}

template <class C>
__device__ __forceinline__ void paged_leave_part(const PagedWork &work, const PagedOwn &at,
                                                 const PagedPartial &total, float *partial_o,
                                                 float *partial_sums) {
    if (at.query >= PagedShape<C>::kQueries)
        return;
    const int to =
        work.split / C::kCluster * (C::kRows * C::kHeads) + paged_head<C>(work, at.query);
    gpu_store((f32x4 *)(partial_o + (i64)to * C::kDim) + at.quad, total.o);
    if (at.quad == 0)
        gpu_store((f32x2 *)partial_sums + to, f32x2{total.top, total.sum});
}

// Folds what all warps left, and finishes the rows or leaves them to the last cluster's block.
template <class C, class From>
__device__ __forceinline__ void paged_merge(const PagedWork &work, const From &from,
                                            const float *outputs, const f32x2 *sums, bf16 *y,
                                            float *partial_o, float *partial_sums, u32 *counters) {
    using Shape = PagedShape<C>;
    const int parts = (work.live + C::kCluster - 1) / C::kCluster;
    f32x4 *const sent = (f32x4 *)(dynamic_shared() + Shape::kSentAt);
    u64 *const arrived = (u64 *)(dynamic_shared() + Shape::kSentAt + Shape::kSentBytes);
    if constexpr (C::kCluster > 1)
        paged_send<C>(work, outputs, sums, sent, arrived);
    for (int i = (int)thread_id(); i < Shape::kOwnLanes; i += C::kWarps * 32) {
        const PagedOwn at = paged_own<C>(work, i);
        u32x2 gate = {};
        if (parts == 1)
            gate = paged_query_gate<C>(work, at.query, at.quad, from);
        PagedPartial total;
        if constexpr (C::kCluster > 1) {
            cluster_wait(arrived, 0u);
            total = paged_fold_cluster<C>(at.own, at.quad, sent);
        } else {
            total = paged_fold_teams<C>(at.row, at.quad, outputs, sums);
        }
        if (parts == 1)
            paged_finish<C>(work, at.query, at.quad, total, gate, y);
        else
            paged_leave_part<C>(work, at, total, partial_o, partial_sums);
    }
    if (parts == 1 || !paged_is_last<C>(work, parts, counters, (u32 *)(arrived + 1)))
        return;
    for (int i = (int)thread_id(); i < Shape::kOwnLanes; i += C::kWarps * 32) {
        const PagedOwn at = paged_own<C>(work, i);
        const int known = at.query < Shape::kQueries ? at.query : Shape::kQueries - 1;
        const u32x2 gate = paged_query_gate<C>(work, at.query, at.quad, from);
        const PagedPartial total = paged_fold_parts<C>(paged_head<C>(work, known), at.quad, parts,
                                                       partial_o, partial_sums);
        paged_finish<C>(work, at.query, at.quad, total, gate, y);
    }
}

// The blocks of a cluster meet, each ready for what the others send. Before grid_trigger().
template <class C>
__device__ __forceinline__ void paged_meet() {
    using Shape = PagedShape<C>;
    if constexpr (C::kCluster > 1) {
        u64 *const arrived = (u64 *)(dynamic_shared() + Shape::kSentAt + Shape::kSentBytes);
        if (thread_id() == 0) {
            mbar_init(arrived, 1);
            mbar_init_fence();
            mbar_expect(arrived, Shape::kSentBytes);
        }
        cluster_sync();
    }
}

// The block's whole work. `walk` has set out; before this comes grid_wait().
template <class C, class From>
__device__ __forceinline__ void paged_block(const PagedWork &work, PagedWalk &walk,
                                            const From &from, const int *table, bf16 *y,
                                            float *partial_o, float *partial_sums, u32 *counters) {
    using Shape = PagedShape<C>;
    if (work.split / C::kCluster * C::kCluster >= work.live) { // the whole cluster has no key
        if (work.split == 0)
            paged_write_zeros<C>(work, y);
        return;
    }
    PagedQueries<C::kDim> tile;
    paged_load_queries<C>(tile, work, from);
    paged_walk<C>(tile, walk, work, from, table);

    // Per warp and row: channels in `outputs`, largest score and sum of weights in `sums`.
    float *outputs = (float *)dynamic_shared();
    f32x2 *sums = (f32x2 *)(outputs + C::kWarps * 16 * Shape::kStride);
    const int row = (int)warp_id() * 16 + (int)lane_id() / 4;
    block_sync(); // nobody reads a chunk any more
    paged_leave<C::kDim>(tile, outputs + row * Shape::kStride, sums + row, Shape::kStride);
    block_sync();
    paged_merge<C>(work, from, outputs, sums, y, partial_o, partial_sums, counters);
}

template <class C>
__device__ __forceinline__ void paged_check() {
    static_assert(C::kHeads % C::kKvHeads == 0, "every kv head serves as many query heads");
    static_assert(C::kRows % C::kRequests == 0, "every request has as many rows");
    static_assert(C::kPageTokens % kPagedUnit == 0, "a page holds whole units of 16 keys");
    static_assert(C::kPacked == 2 * C::kDim, "a cache row is k, v");
    static_assert(C::kOut == C::kHeads * C::kDim, "y holds every head");
    static_assert(C::kMaxContext <= C::kTableWidth * C::kPageTokens, "the table holds the context");
    static_assert(C::kSlices == PagedShape<C>::kSlices, "counters for every slice");
    static_assert(C::kWarps == C::kTeams * C::kTiles, "a team is a warp a tile");
    static_assert(C::kParts * C::kCluster == C::kSplits, "clusters are whole");
    static_assert(C::kChunk % kPagedUnit == 0 && 32 % (C::kChunk / kPagedUnit) == 0,
                  "a chunk is 1, 2, 4 ... units");
    static_assert((C::kTiles & (C::kTiles - 1)) == 0, "the rows of a warp's copies differ in bits");
    static_assert(C::kTiles == 1 || C::kTeams < 16, "a barrier for every team");
    static_assert(C::kStages > 1, "one chunk is read while the next is on its way");
    static_assert((float)C::kScale > 0.0f, "the largest product has the largest score");
}

#endif
