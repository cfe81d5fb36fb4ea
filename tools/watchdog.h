/* SPDX-License-Identifier: Apache-2.0
 * Ends the process where a kernel of the host device never ends. */
#ifndef LATHE_WATCHDOG_H
#define LATHE_WATCHDOG_H

/* `ranks`: how many share the time of the process. One watchdog at a time. */
void lathe_watchdog_start(int ranks);
void lathe_watchdog_stop(void); /* also without a start */

#endif
