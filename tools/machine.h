/* SPDX-License-Identifier: Apache-2.0
 * The GPU as its driver's management library sees it, for records of measurements. */
#ifndef LATHE_MACHINE_H
#define LATHE_MACHINE_H

typedef struct {
    char driver[80];                                    /* "580.65.06"; "" where it is not known */
    unsigned int clock_mhz, clock_most_mhz, memory_mhz; /* of the multiprocessors, now and at most;
                                                           of the memory; 0: not known */
    unsigned int watts; /* drawn now; 0: not known */
} lathe_machine;

/* GPU number `ordinal`, in the library's order. What cannot be read stays empty. */
void lathe_machine_read(int ordinal, lathe_machine *machine);

#endif
