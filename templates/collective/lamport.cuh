/* SPDX-License-Identifier: Apache-2.0
 * One-shot exchanges through mailboxes: push 16-byte packets to every rank, poll one's own slot,
 * empty what was read.
 *
 * The data is its own flag: a word of a slot is kEmpty until a packet lands, and no packet holds
 * such a word, because a sender canonicalises NaN. Exchange number e (the epoch) of a kind uses
 * slot e mod 3, [source rank][payload].
 *
 * An exchange is one launch, or two in a row on the stream: one that pushes only (a product that
 * publishes its result) and one that receives and advances the epoch. Pushing needs no wait of its
 * own: "launch of e" below means the receiving one, and the pushing one stands between the launches
 * of e - 1 and e, so it sees that of e - 1 complete after its grid_wait().
 *
 * Why the slots suffice. Let a rank A be in its launch of exchange e.
 * 1. A peer pushes exchange f only after its launch of f - 1 was complete (stream order; an early
 * launch pushes after grid_wait()), so after it had received A's packets of f - 1. A pushes those
 * in its own launch of f - 1 or right before it. Hence f - 1 <= e: what can land at A belongs to e
 * or to e + 1, never to anything later.
 * 2. Nor to anything earlier: A's launch of e - 1 was complete only when all packets of e - 1 had
 * been read.
 * 3. Each launch empties every packet that it read, and no other, so launches of different payloads
 * may share a kind. Slot (e + 1) mod 3 was last used by exchange e - 2, and was empty when A's
 * launch of e - 2 was complete; a peer's packets of e + 1 start after A pushed e, which is later.
 * So the slots of e and e + 1 must be distinct and the third is slack: it is empty throughout
 * launch e, whatever the store buffers of launch e - 1 still hold when launch e is started early.
 * tests/protocol explores all interleavings of a model of this: one slot is too few, two suffice
 * only where the end of a launch flushes its stores, three suffice either way.
 *
 * Every wait is bounded. Who reaches the deadline first on a rank records the fault and raises
 * abort there and at every peer; all later waits of any kind of exchange see the word and fall
 * through at once, with whatever lies in the slot. */
#ifndef LATHE_COLLECTIVE_LAMPORT_CUH
#define LATHE_COLLECTIVE_LAMPORT_CUH

#include "prims.cuh"

constexpr u32 kEmpty = 0xffffffffu;
constexpr u32 kEpochs =
    3u << 30; /* epochs are counted modulo this multiple of 3, so that the rotation never skips */

/* What a thread needs to know of a mailbox. The struct is written once at build, so reading it is
 * like reading a weight, and happens before grid_wait(). */
struct Exchange {
    const Mailbox *mailbox;
    u32 rank, world;
    u64 slot_bytes;
    u32 *epoch;
    u8 *const *base; /* in shared memory */
};

template <class T>
__device__ __forceinline__ T *lamport_pointer(T *const *field) {
    const u32x2 bits = load_weight8(field);
    return reinterpret_cast<T *>(static_cast<u64>(bits.y) << 32 | bits.x);
}

__device__ __forceinline__ u64 lamport_number(const u64 *field) {
    const u32x2 bits = load_weight8(field);
    return static_cast<u64>(bits.y) << 32 | bits.x;
}

/* Whole blocks call; `shared` holds 16 pointers. */
__device__ __forceinline__ Exchange lamport_open(const Mailbox *mailbox, u64 *shared) {
    Exchange e;
    e.mailbox = mailbox;
    e.rank = load_weight4(&mailbox->rank);
    e.world = load_weight4(&mailbox->world);
    e.slot_bytes = lamport_number(&mailbox->slot_bytes);
    e.epoch = lamport_pointer(&mailbox->epoch);
    e.base = reinterpret_cast<u8 *const *>(shared);
    if (thread_id() < e.world)
        shared_store(shared + thread_id(),
                     reinterpret_cast<u64>(lamport_pointer(&mailbox->base[thread_id()])));
    block_sync();
    return e;
}

/* Bytes that lamport_lay_down takes. */
constexpr u32 kLamportShared = 160;

/* lamport_open in two halves, for a launch that holds no register for its mailbox until it pushes.
 * A barrier of the whole block lies between them. */
__device__ __forceinline__ void lamport_lay_down(const Mailbox *mailbox, u64 *shared) {
    const u32 i = thread_id();
    if (i < 16)
        shared_store(shared + i, lamport_number(reinterpret_cast<const u64 *>(&mailbox->base[i])));
    if (i == 16)
        shared_store(shared + 16, lamport_number(reinterpret_cast<const u64 *>(mailbox)));
    if (i == 17)
        shared_store(shared + 17, lamport_number(&mailbox->slot_bytes));
    if (i == 18)
        shared_store(shared + 18, lamport_number(reinterpret_cast<const u64 *>(&mailbox->epoch)));
}

__device__ __forceinline__ Exchange lamport_take_up(const Mailbox *mailbox, const u64 *shared) {
    const u64 ranks = shared_load(shared + 16);
    Exchange e;
    e.mailbox = mailbox;
    e.rank = static_cast<u32>(ranks);
    e.world = static_cast<u32>(ranks >> 32);
    e.slot_bytes = shared_load(shared + 17);
    e.epoch = reinterpret_cast<u32 *>(shared_load(shared + 18));
    e.base = reinterpret_cast<u8 *const *>(shared);
    return e;
}

/* Number of the exchange that this launch performs; valid after grid_wait(). */
__device__ __forceinline__ u32 lamport_epoch(const Exchange &e) {
    return gpu_load(e.epoch);
}

/* Start of the payload that rank `source` sends in `epoch`, in the region of rank `owner`. */
__device__ __forceinline__ u8 *lamport_slot(const Exchange &e, u32 owner, u32 source, u32 epoch) {
    u8 *const base = shared_load(e.base + owner);
    return base + (static_cast<u64>(epoch % 3u) * e.world + source) * e.slot_bytes;
}

/* Eight bf16 whose NaN are all 0x7fff: a product with one changes nothing else. */
__device__ __forceinline__ u32x4 lamport_bf16_packet(u32x4 values) {
    constexpr u32 kOnes = 0x3f803f80u;
    return {multiply_bf16(values.x, kOnes), multiply_bf16(values.y, kOnes),
            multiply_bf16(values.z, kOnes), multiply_bf16(values.w, kOnes)};
}

/* Sends a packet to every rank, oneself included, `offset` bytes into the payload. Ranks begin at
 * different peers. */
__device__ __forceinline__ void lamport_push(const Exchange &e, u32 epoch, u64 offset,
                                             u32x4 packet) {
    for (u32 i = 0; i < e.world; i++) {
        const u32 to = e.rank + i < e.world ? e.rank + i : e.rank + i - e.world;
        peer_store16(lamport_slot(e, to, e.rank, epoch) + offset, packet);
    }
}

/* The same to all other ranks, whose number the kernel knows. */
template <int kRanks>
__device__ __forceinline__ void lamport_push_others(const Exchange &e, u32 epoch, u64 offset,
                                                    u32x4 packet) {
    const u64 at = (epoch % 3u * static_cast<u32>(kRanks) + e.rank) * e.slot_bytes + offset;
#pragma unroll
    for (u32 i = 1; i < kRanks; i++) {
        const u32 to = e.rank + i < kRanks ? e.rank + i : e.rank + i - kRanks;
        peer_store16(shared_load(e.base + to) + at, packet);
    }
}

__device__ __forceinline__ bool lamport_arrived(u32x4 packet) {
    return packet.x != kEmpty && packet.y != kEmpty && packet.z != kEmpty && packet.w != kEmpty;
}

/* Where packets of rank `source` in `epoch` lie on this rank; for what happens once, since it reads
 * the mailbox anew. */
__device__ __forceinline__ const u8 *lamport_own_slot(const Mailbox *m, u32 source, u32 epoch) {
    return m->base[m->rank] + (static_cast<u64>(epoch % 3u) * m->world + source) * m->slot_bytes;
}

/* Whether `peer` has sent packets of another exchange and not of this one: the ranks count
 * differently. A peer that is only late has left its other two slots empty, or else, where it came
 * at the last moment, has sent this exchange's before the next one's. */
__device__ __forceinline__ bool lamport_diverged(const Mailbox *m, u32 epoch, u64 offset,
                                                 u32 peer) {
    const u32x4 next = peer_load16(lamport_own_slot(m, peer, epoch + 1) + offset);
    const u32x4 last = peer_load16(lamport_own_slot(m, peer, epoch + 2) + offset);
    if (!lamport_arrived(next) && !lamport_arrived(last))
        return false;
    peer_fence(); /* keep: the look below must not run ahead of those above */
    return !lamport_arrived(peer_load16(lamport_own_slot(m, peer, epoch) + offset));
}

/* Gives the exchange up: records who was missing where the host sees it, flag last (1: missing, 2:
 * at another exchange), then tells the peers. Only the first thread of the rank to give up does so;
 * where a peer gave up first, its record lies behind the abort word. */
__device__ __forceinline__ void lamport_abandon(const Mailbox *m, u32 epoch, u64 offset, u32 peer) {
    if (gpu_atomic_or(m->abort, 1u) != 0)
        return;
    const u32 flag = lamport_diverged(m, epoch, offset, peer) ? 2u : 1u;
    u32 *const fault =
        reinterpret_cast<u32 *>(m->fault); /* the low halves; the high ones stay zero */
    peer_store4(fault + 2, peer);
    peer_store4(fault + 4, m->exchange);
    peer_store4(fault + 6, epoch);
    peer_fence(); /* keep: the host may look while the kernel runs, which no test on the emulator
                     does */
    peer_store4(fault, flag);
    const u32x4 record = {peer | flag << 16, m->exchange, epoch, m->rank};
    for (u32 to = 0; to < m->world; to++)
        if (to != m->rank)
            peer_store16(m->peer_abort[to] + 4, record);
    peer_fence(); /* keep: as above */
    for (u32 to = 0; to < m->world; to++)
        if (to != m->rank)
            peer_store4(m->peer_abort[to], 1u);
}

constexpr u64 kGaveUp = ~0ull;

/* Whether to wait on for `peer`: kGaveUp, else the time of the first such question, which the next
 * one brings along (`start`; 0 with the first). A function of its own, of few plain arguments:
 * inlined, it and lamport_abandon() are 4 KB of code between the last look for a packet and the use
 * of what came, whose fetch every exchange would pay for. */
__device__ __noinline__ u64 lamport_patience(const Mailbox *m, u32 epoch, u64 offset, u32 peer,
                                             u64 start) {
    if (peer_load4(m->abort) != 0)
        return kGaveUp;
    const u64 now = clock_ns();
    if (start == 0)
        return now;
    if (now - start <= m->timeout_ns)
        return start;
    lamport_abandon(m, epoch, offset, peer);
    return kGaveUp;
}

/* Where packet `i` of several is, by their places: from `hole` on, one place is left out. */
__device__ __forceinline__ u32 lamport_place(u32 i, u32 hole) {
    return i >= hole ? i + 1 : i;
}

/* Looks for `count` packets, places `stride` bytes apart. Returns the number of one that is not
 * there, else kEmpty. */
template <int kGroup>
__device__ __forceinline__ u32 lamport_look(const u8 *from, u64 stride, u32 count, u32 hole,
                                            u32x4 (&packet)[kGroup]) {
    u32 missing = kEmpty;
#pragma unroll
    for (u32 i = 0; i < kGroup; i++)
        if (i < count)
            packet[i] = peer_load16(from + lamport_place(i, hole) * stride);
#pragma unroll
    for (u32 i = 0; i < kGroup; i++)
        if (i < count && !lamport_arrived(packet[i]))
            missing = i;
    return missing;
}

/* Waits for `count` <= kGroup packets, all polled together, and empties them. Place 0 is of rank
 * `first` at `offset`, each further one `ranks` ranks and `bytes` bytes of the payload on; place
 * `hole` is left out. Between looks there is nothing else, most of the time: whatever stood there,
 * a packet would be met that much later. */
template <int kGroup>
__device__ __forceinline__ void lamport_take(const Exchange &e, u32 epoch, u64 offset, u32 first,
                                             u32 count, u32 ranks, u64 bytes, u32 hole,
                                             u32x4 (&packet)[kGroup]) {
    u8 *const from = lamport_slot(e, e.rank, first, epoch) + offset;
    const u64 stride = ranks * e.slot_bytes + bytes;
    u64 start = 0;
    for (;;) {
        u32 missing = 0;
#pragma unroll 1
        for (u32 looks = 0; looks < kPollLooks && missing != kEmpty; looks++)
            missing = lamport_look<kGroup>(from, stride, count, hole, packet);
        if (missing == kEmpty)
            break;
        const u32 place = lamport_place(missing, hole);
        start = lamport_patience(e.mailbox, epoch, offset + place * bytes, first + place * ranks,
                                 start);
        if (start == kGaveUp)
            break;
        poll_pause();
    }
#pragma unroll
    for (u32 i = 0; i < kGroup; i++)
        if (i < count)
            peer_store16(from + lamport_place(i, hole) * stride,
                         u32x4{kEmpty, kEmpty, kEmpty, kEmpty});
}

/* The packets at one offset of `count` ranks from `first` on. */
template <int kGroup>
__device__ __forceinline__ void lamport_receive(const Exchange &e, u32 epoch, u64 offset, u32 first,
                                                u32 count, u32x4 (&packet)[kGroup]) {
    lamport_take<kGroup>(e, epoch, offset, first, count, 1, 0, kEmpty, packet);
}

/* The same of the other ranks only, counted without oneself: `first` is the first that is meant. */
template <int kGroup>
__device__ __forceinline__ void lamport_receive_others(const Exchange &e, u32 epoch, u64 offset,
                                                       u32 first, u32 count,
                                                       u32x4 (&packet)[kGroup]) {
    const bool past = first >= e.rank;
    lamport_take<kGroup>(e, epoch, offset, past ? first + 1 : first, count, 1, 0,
                         past ? kEmpty : e.rank - first, packet);
}

/* `count` packets of rank `source`, `bytes` bytes of the payload apart. */
template <int kGroup>
__device__ __forceinline__ void lamport_receive_run(const Exchange &e, u32 epoch, u64 offset,
                                                    u64 bytes, u32 source, u32 count,
                                                    u32x4 (&packet)[kGroup]) {
    lamport_take<kGroup>(e, epoch, offset, source, count, 0, bytes, kEmpty, packet);
}

/* Ends the launch's exchange: the last of `blocks` to arrive advances the epoch. One thread of each
 * block calls, after a barrier that follows the block's last lamport_epoch(). The next launch reads
 * the epoch after its grid_wait(). In two halves, so that the answer to the first is waited for as
 * late as possible. */
__device__ __forceinline__ u32 lamport_arrive(const Exchange &e) {
    return gpu_atomic_add(e.epoch + 1, 1u);
}

__device__ __forceinline__ void lamport_leave(const Exchange &e, u32 epoch, u32 arrived,
                                              u32 blocks) {
    if (arrived != blocks - 1)
        return;
    gpu_store(e.epoch + 1, 0u);
    gpu_store(e.epoch, epoch + 1 == kEpochs ? 0u : epoch + 1);
}

__device__ __forceinline__ void lamport_close(const Exchange &e, u32 epoch, u32 blocks) {
    lamport_leave(e, epoch, lamport_arrive(e), blocks);
}

#endif
