#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/units/unit_layout.hpp"

namespace trireme {

/// The main gradients of a rank, in units; frozen ones have none.
///
/// Not sharded, one buffer holds all units whole. Sharded (ZeRO-2 and 3; reproducible sums), a rank
/// keeps the sums of its parts; a unit is whole only while a backward pass fills it, from its first
/// gradient until take(). Where no other rank holds parts of a unit, its part is all of it, and what a
/// pass adds to it is the sum.
class UnitGrads {
 public:
  UnitGrads() = default;
  /// `each_alone`: sharded, and each pass's gradients of every unit are taken alone.
  UnitGrads(const UnitLayout& layout, at::ScalarType dtype, at::Device device, bool sharded,
            bool each_alone = false);

  [[nodiscard]] bool sharded() const { return sharded_; }

  /// All of a unit, [unit.count]: what backward adds to. Sharded: zeros at first.
  [[nodiscard]] at::Tensor whole(std::size_t unit);

  /// What this rank updates with, [part(unit).count()].
  [[nodiscard]] at::Tensor part(std::size_t unit) const;

  /// Sharded, and whole only for a time.
  [[nodiscard]] bool apart(std::size_t unit) const;

  /// Not sharded: `count` elements from `begin` on of the buffer of all trained units.
  [[nodiscard]] at::Tensor range(std::int64_t begin, std::int64_t count) const;

  /// Apart: a complete unit, which the caller reduces and adds to part().
  [[nodiscard]] at::Tensor take(std::size_t unit);

  void zero();

  /// Bytes that a rank holds all the time.
  [[nodiscard]] std::int64_t held_bytes() const {
    return static_cast<std::int64_t>(flat_.nbytes());
  }

  /// Bytes of whole units while sharded, those that wait for their sums included, the most at any
  /// time.
  [[nodiscard]] std::int64_t live_peak_bytes() const { return peak_bytes_; }

  /// What was taken may be free again.
  void returned(std::int64_t bytes) { live_bytes_ -= bytes; }

 private:
  const UnitLayout* layout_ = nullptr;
  bool sharded_ = false;
  bool each_alone_ = false;
  at::Tensor flat_;  // all trained units, or all their parts
  std::vector<at::Tensor> live_;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace trireme
