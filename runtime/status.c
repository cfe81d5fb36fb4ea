/* SPDX-License-Identifier: Apache-2.0
 * Owns: the names of statuses. */
#include "lathe.h"

const char *lathe_status_name(lathe_status status) {
    switch (status) {
    case LATHE_OK:
        return "ok";
    case LATHE_INVALID:
        return "invalid";
    case LATHE_UNSUPPORTED:
        return "unsupported";
    case LATHE_NO_MEMORY:
        return "no memory";
    case LATHE_NO_DEVICE:
        return "no device";
    case LATHE_COMPILE:
        return "compile";
    case LATHE_IO:
        return "input/output";
    case LATHE_DEVICE_FAULT:
        return "device fault";
    case LATHE_PEER_LOST:
        return "peer lost";
    case LATHE_DISAGREE:
        return "ranks disagree";
    }
    return "unknown status";
}
