/* SPDX-License-Identifier: Apache-2.0
 * alpha and beta of a gated residual, a channel per thread, in double and rounded to fp32 once:
 * they are made once. */
#ifndef LATHE_PREPARE_RESIDUAL_GATE_CUH
#define LATHE_PREPARE_RESIDUAL_GATE_CUH

#include "prims.cuh"

__device__ __forceinline__ double gate_sigmoid(double u) {
    constexpr double kLog2E = 1.4426950408889634;
    return 1.0 / (1.0 + exp2_f64(-u * kLog2E));
}

template <class C>
__device__ void residual_gate(const bf16 *gate, float *alpha, float *beta) {
    const u32 channel = block_id() * block_threads() + thread_id();
    if (channel >= static_cast<u32>(C::kHidden))
        return;
    const double u =
        static_cast<double>(bf16_to_float(gate[channel])) / static_cast<double>(C::kTemperature);
    const double kept =
        gate_sigmoid(-u) * (1.0 + gate_sigmoid(u)); /* 1 - beta^2 without its cancellation */
    const double clamp = static_cast<double>(C::kClamp);
    beta[channel] = static_cast<float>(gate_sigmoid(u));
    alpha[channel] = sqrt_f32(static_cast<float>(kept > clamp ? kept : clamp));
}

#endif
