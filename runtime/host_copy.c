/* SPDX-License-Identifier: Apache-2.0
 * A thread's own asynchronous copies of 16 bytes. One lands when the thread waits for its group or,
 * by chance, when the thread commits one; until then the destination is poison. */
#include "host_internal.h"

#include <string.h>

static void land(host_thread *t, int index) {
    memcpy(t->copy[index].to, t->copy[index].from, 16);
    t->copy[index] = t->copy[--t->copies];
}

static void copy16(void *to, const void *from) {
    host_thread *t = lathe_emu_current();
    const uintptr_t offset = (uintptr_t)to - (uintptr_t)t->view.shared;
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0)
        lathe_emu_fault(t, "copy16 from %p to shared byte %lld: both must be multiples of 16", from,
                        (long long)offset);
    if (offset > t->view.shared_bytes || t->view.shared_bytes - offset < 16)
        lathe_emu_fault(t, "copy16 to shared byte %lld of %u", (long long)offset,
                        t->view.shared_bytes);
    if (t->copies == THREAD_COPIES)
        lathe_emu_fault(t, "more than %d copies of a thread on their way", THREAD_COPIES);
    lathe_emu_poison(lathe_emu_active, to, 16);
    t->view.touched[offset / 16] = 1;
    t->copy[t->copies++] = (host_own_copy){to, from, t->groups};
}

static void copy_commit(void) {
    host_thread *t = lathe_emu_current();
    t->groups++;
    if (t->copies > 0 && (lathe_emu_random(lathe_emu_active) & 1u))
        land(t, (int)lathe_emu_pick(lathe_emu_active, (uint32_t)t->copies));
}

static void copy_wait(unsigned int left) {
    host_thread *t = lathe_emu_current();
    for (int i = t->copies - 1; i >= 0; i--)
        if (t->groups - t->copy[i].group > left)
            land(t, i);
}

void lathe_emu_fill_copy(lathe_emulator_table *table) {
    table->copy16 = copy16;
    table->copy_commit = copy_commit;
    table->copy_wait = copy_wait;
}
