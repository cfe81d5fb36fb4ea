/* SPDX-License-Identifier: Apache-2.0
 * The rest of a buffer: buffers are as large as the largest variant needs, a launch of another one
 * sees only their front. What it writes behind that would be the next buffer's where it is largest.
 */
#include <stdlib.h>

#include "check_state.h"

#define POISON 0x5a /* finite, large, no index: to be seen where it is read as well */
#define REST_LIMIT ((size_t)64 << 20) /* of a longer rest the front is looked at */

static size_t rest_bytes(const lathe_step_value *v) {
    const lathe_step_buffer *b = v->buffer;
    if (!b || !v->address || v->arg->dir == LATHE_DIR_IN || b->lifetime == LATHE_LIFETIME_KV ||
        (size_t)b->fixed_bytes <= v->bytes)
        return 0;
    const size_t rest = (size_t)b->fixed_bytes - v->bytes;
    return rest < REST_LIMIT ? rest : REST_LIMIT;
}

lathe_status lathe_check_rest_fill(lathe_check_state *c, int rank, const lathe_step_value *v) {
    lathe_device *d = lathe_engine_device(c->options->engines[rank]);
    const size_t rest = rest_bytes(v);
    if (!rest || v->buffer->zeroed)
        return LATHE_OK;
    const lathe_status status = d->ops->fill(d, (char *)v->address + v->bytes, POISON, rest);
    return status == LATHE_OK ? status : lathe_check_refuse(c, status, "%s", d->message);
}

lathe_status lathe_check_rest_holds(lathe_check_state *c, int rank, const lathe_step_value *v,
                                    bool *holds) {
    const size_t rest = rest_bytes(v);
    *holds = true;
    if (!rest)
        return LATHE_OK;
    const unsigned char expected = v->buffer->zeroed ? 0 : POISON;
    unsigned char *found = malloc(rest);
    if (!found)
        return lathe_check_refuse(c, LATHE_NO_MEMORY, "no memory for %s",
                                  lathe_check_value_name(v));
    lathe_status status = lathe_engine_read(c->options->engines[rank], v->buffer->name, v->layer,
                                            v->bytes, found, rest);
    if (status != LATHE_OK)
        status = lathe_check_refuse_engine(c, rank, status);
    for (size_t i = 0; status == LATHE_OK && i < rest && *holds; ++i)
        *holds = found[i] == expected;
    free(found);
    return status;
}
