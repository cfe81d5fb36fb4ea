// SPDX-License-Identifier: Apache-2.0
// What tests of exchanges share: values that a payload may hold and what a mailbox must look like
// afterwards.
#ifndef LATHE_EMULATED_MAILBOXES_H
#define LATHE_EMULATED_MAILBOXES_H

#include "harness.h"

namespace mailboxes {

// NaN of every sign and payload (0xffff twice is the word of an empty slot), infinities,
// subnormals, both zeros, the greatest number.
inline u16 unkind(int64_t i) {
    static const u16 bits[] = {0xffff, 0xffff, 0x7fff, 0xff81, 0x7f80, 0xff80,
                               0x0001, 0x8000, 0x7fc0, 0x8001, 0x7f7f};
    return bits[i % 11];
}

inline const Mailbox *mailbox_of(const Kernel &k, const char *name, int rank) {
    return static_cast<const Mailbox *>(k.result(name, rank));
}

// Every slot empty, nobody arrived, the epoch counted, no fault.
inline void check_left_clean(const Kernel &k, const char *name, int ranks, u32 exchanges,
                             u64 slot_bytes) {
    for (int rank = 0; rank < ranks; rank++) {
        const Mailbox *m = mailbox_of(k, name, rank);
        require(m->epoch[0] == exchanges && m->epoch[1] == 0, "rank %d: epoch %u, arrivals %u",
                rank, m->epoch[0], m->epoch[1]);
        require(m->abort[0] == 0 && m->fault[0] == 0, "rank %d has a fault", rank);
        for (u64 i = 0; i < 3 * static_cast<u64>(ranks) * slot_bytes; i++)
            require(m->base[rank][i] == 0xff, "rank %d: byte %llu of the slots is not empty", rank,
                    i);
    }
}

// Rank `lost` of `ranks` never came: all others were told, and the launches of all fell through.
// With two ranks the fault is sure to name the lost one, and the first exchange.
inline void check_lost(const Kernel &k, const char *name, int ranks, int lost, u32 exchanges) {
    for (int rank = 0; rank < ranks; rank++) {
        const Mailbox *m = mailbox_of(k, name, rank);
        require(m->abort[0] == 1, "rank %d was not told to abort", rank);
        require(rank == lost || m->epoch[0] == exchanges, "rank %d: epoch %u of %u", rank,
                m->epoch[0], exchanges);
    }
    const Mailbox *m = mailbox_of(k, name, lost == 0 ? 1 : 0);
    require(ranks > 2 || (m->fault[0] == 1 && m->fault[1] == static_cast<u64>(lost)),
            "flag %llu, lost rank %llu", m->fault[0], m->fault[1]);
    require(ranks > 2 || (m->fault[2] == m->exchange && m->fault[3] == 0),
            "exchange %llu, epoch %llu", m->fault[2], m->fault[3]);
}

} // namespace mailboxes

#endif
