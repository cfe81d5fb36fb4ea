/* SPDX-License-Identifier: Apache-2.0
 * How a checkpoint tensor is cut for one rank of a TP size. */
#ifndef LATHE_SHARD_H
#define LATHE_SHARD_H

#include "layout.h"

/* Shape of one rank's part. A TP size that does not divide the axis is refused with the reason. */
lathe_shape lathe_shard_local(lathe_lua *lua, const lathe_tensor *tensor, int64_t tp);

/* Fails unless the tensors of a weight, cut and joined, have the weight's dtype and shape. */
void lathe_shard_check(lathe_lua *lua, const lathe_deployment *deployment,
                       const lathe_datum *weight);

#endif
