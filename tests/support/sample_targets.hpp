#pragma once
#include <cstdint>
#include <span>

#include "data/order/samples.hpp"

namespace trireme {

/// Returns the sum of num_targets over global sample indices; kNoSample counts as 0.
inline std::int64_t count_sample_targets(const data::SampleSet& samples,
                                         std::span<const std::int64_t> indices,
                                         const data::SampleOrder& order) {
  std::int64_t sum = 0;
  for (const std::int64_t index : indices) {
    if (index != data::kNoSample)
      sum += samples.num_targets(order.locate(static_cast<std::uint64_t>(index)).position);
  }
  return sum;
}

}  // namespace trireme
