/* SPDX-License-Identifier: Apache-2.0
 * Owns: loading NCCL and its entry points. */
#include "nccl.h"

#include "library.h"

#define OLDEST 21700 /* the first with all of the configuration that is used */

static const lathe_library library = {"NCCL", "LATHE_NCCL", {"libnccl.so.2"}};

static const lathe_library_call calls[] = {
#define LATHE_NCCL_ENTRY(member, symbol, parameters) {#symbol, offsetof(lathe_nccl, member)},
    LATHE_NCCL_CALLS(LATHE_NCCL_ENTRY)
#undef LATHE_NCCL_ENTRY
        {"ncclGetErrorString", offsetof(lathe_nccl, result_text)},
    {"ncclGetLastError", offsetof(lathe_nccl, last_error)},
};

static lathe_status check_version(lathe_nccl *n, lathe_message_buffer message) {
    const lathe_status status = lathe_library_take(
        &library, n->library, calls, sizeof calls / sizeof calls[0], n, "2.17", message);
    if (status != LATHE_OK)
        return status;
    if (n->get_version(&n->version) != NCCL_OK)
        return lathe_fail(message, LATHE_NO_DEVICE, "NCCL does not tell its version");
    if (n->version < OLDEST)
        return lathe_fail(message, LATHE_NO_DEVICE,
                          "NCCL is too old: found number %d, allowed: %d (2.17) or newer",
                          n->version, OLDEST);
    return LATHE_OK;
}

lathe_status lathe_nccl_open(const char *where, lathe_nccl *n, lathe_message_buffer message) {
    *n = (lathe_nccl){0};
    lathe_status status = lathe_library_open(&library, where, &n->library, message);
    if (status == LATHE_OK)
        status = check_version(n, message);
    if (status != LATHE_OK)
        lathe_nccl_close(n);
    return status;
}

/* The library stays: it keeps threads of its own. */
void lathe_nccl_close(lathe_nccl *n) {
    *n = (lathe_nccl){0};
}

lathe_status lathe_nccl_make_id(const lathe_nccl *n, nccl_id *id, lathe_message_buffer message) {
    const nccl_result result = n->make_id(id);
    if (result == NCCL_OK)
        return LATHE_OK;
    return lathe_fail(message, LATHE_DEVICE_FAULT, "ncclGetUniqueId: %s (%d)",
                      n->result_text(result), result);
}
