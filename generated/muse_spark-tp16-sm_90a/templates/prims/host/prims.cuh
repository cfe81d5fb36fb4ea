// SPDX-License-Identifier: Apache-2.0
// The instructions a kernel may use, on the emulator. The same names stand in ../cuda; ../README.md
// is the list and the contract.
#ifndef LATHE_PRIMS_CUH
#define LATHE_PRIMS_CUH

#include "types.cuh"
#include "index.cuh"
#include "numbers.cuh"
#include "maths.cuh"
#include "warp.cuh"
#include "shared.cuh"
#include "bulk.cuh"
#include "memory.cuh"
#include "mailbox.cuh"

#endif
