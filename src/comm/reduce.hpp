#pragma once
#include <cstdint>
#include <span>

#include "comm/requests.hpp"

namespace trireme {

/// Computes ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ... for each i, in this order.
void reduce_in_order(std::span<const void* const> inputs, void* output, std::uint64_t count,
                     DType dtype, ReduceOp op);

}  // namespace trireme
