#pragma once
#include <cstdint>
#include <span>

#include "comm/requests.hpp"

namespace trireme::comm {

/// Computes ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ... for each i, in this order.
///
/// Sums of bf16 and f16 accumulate in f32 and round once at the end. Integers wrap around. max and
/// min of floats give NaN if any value is NaN. `output` may be one of the inputs; otherwise the
/// buffers must not overlap.
void reduce_in_order(std::span<const void* const> inputs, void* output, std::uint64_t count,
                     DType dtype, ReduceOp op);

}  // namespace trireme::comm
