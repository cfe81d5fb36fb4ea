// SPDX-License-Identifier: Apache-2.0
// What tests of kernels that exchange through a mailbox ask after a run.
#ifndef LATHE_EMULATED_EXCHANGED_H
#define LATHE_EMULATED_EXCHANGED_H

#include "harness.h"

inline const Mailbox *mailbox_of(const Kernel &k, int rank) {
    return static_cast<const Mailbox *>(k.result("mailbox", rank));
}

// Every slot empty, nobody arrived, the epoch counted, no fault.
inline void require_left_clean(const Kernel &k, int ranks, u32 exchanges, u64 slot_bytes) {
    for (int rank = 0; rank < ranks; rank++) {
        const Mailbox *m = mailbox_of(k, rank);
        require(m->epoch[0] == exchanges && m->epoch[1] == 0, "rank %d: epoch %u, arrivals %u",
                rank, m->epoch[0], m->epoch[1]);
        require(m->abort[0] == 0 && m->fault[0] == 0, "rank %d has a fault", rank);
        for (u64 i = 0; i < 3 * static_cast<u64>(ranks) * slot_bytes; i++)
            require(m->base[rank][i] == 0xff, "rank %d: byte %llu of the slots is not empty", rank,
                    i);
    }
}

// Rank 1 of two never came: rank 0 names it, tells it to abort, and all its launches fell through.
inline void require_lost_rank_1(const Kernel &k, u32 launches) {
    const Mailbox *m = mailbox_of(k, 0);
    require(m->abort[0] == 1 && mailbox_of(k, 1)->abort[0] == 1, "a rank was not told to abort");
    require(m->epoch[0] == launches, "%u launches of rank 0 fell through", m->epoch[0]);
    require(m->fault[0] == 1 && m->fault[1] == 1, "flag %llu, lost rank %llu", m->fault[0],
            m->fault[1]);
    require(m->fault[2] == m->exchange && m->fault[3] == 0, "exchange %llu, epoch %llu",
            m->fault[2], m->fault[3]);
}

#endif
