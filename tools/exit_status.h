/* SPDX-License-Identifier: Apache-2.0
 * The exit status of a command that runs on a device, from what the runtime said. */
#ifndef LATHE_EXIT_STATUS_H
#define LATHE_EXIT_STATUS_H

#include "commands.h"
#include "lathe.h"

static inline int lathe_exit_status(lathe_status status) {
    switch (status) {
    case LATHE_OK:
        return LATHE_EXIT_OK;
    case LATHE_NO_DEVICE:
    case LATHE_DEVICE_FAULT:
    case LATHE_PEER_LOST:
    case LATHE_DISAGREE:
        return LATHE_EXIT_DEVICE;
    default:
        return LATHE_EXIT_USAGE;
    }
}

#endif
