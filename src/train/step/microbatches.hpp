#pragma once
#include "data/batch.hpp"
#include "parallel/microbatch.hpp"

namespace trireme {

/// A batch as tensors on `device`. `step` and `training` are what dropout reads.
Microbatch to_microbatch(const Batch& batch, at::Device device, std::int64_t step, bool training);

}  // namespace trireme
