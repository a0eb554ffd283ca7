#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "parallel/memory_count.hpp"
#include "parallel/units/unit_weights.hpp"

namespace trireme {

/// Bytes that forward passes leave for their backward passes; gathered weights are not theirs. Off,
/// it does nothing.
class ActivationCount {
 public:
  ActivationCount(const UnitWeights& weights, bool on) : weights_(weights) {
    if (on) memory_.emplace();
  }

  void before_forward() {
    if (memory_) before_ = own_bytes();
  }

  /// `others`: bytes that the pass keeps and another made, less those that it made for another.
  void after_forward(std::size_t micro_batch, std::int64_t others = 0) {
    if (!memory_) return;
    kept_[micro_batch] = own_bytes() - before_ + others;
    std::int64_t all = 0;
    for (const auto& [number, bytes] : kept_) all += bytes;
    peak_ = std::max(peak_, all);
  }

  void after_backward(std::size_t micro_batch) { kept_.erase(micro_batch); }

  /// Of all micro-batches between the two, the most at any time.
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_; }

 private:
  [[nodiscard]] std::int64_t own_bytes() const {
    return memory_->live_bytes() - weights_.gathered_bytes();
  }

  const UnitWeights& weights_;
  std::optional<MemoryCount> memory_;
  std::int64_t before_ = 0;
  std::map<std::size_t, std::int64_t> kept_;
  std::int64_t peak_ = 0;
};

}  // namespace trireme
