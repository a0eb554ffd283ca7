#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "parallel/units/unit_layout.hpp"

namespace trireme::parallel {

/// The master gradients of a rank, by FSDP unit. Frozen units have none.
///
/// If gradients are not sharded, one buffer contains all units whole. If they are sharded (ZeRO-2
/// and 3, reproducible sums), a rank stores the sums of its parts. In the sharded case, a unit is
/// whole only while a backward pass fills it, from its first gradient until take(). If this rank's
/// part is the whole unit, backward adds directly to the sum (not with `each_alone`).
class UnitGrads {
 public:
  UnitGrads() = default;
  /// `each_alone` requires `sharded`: the caller takes the gradients of every backward pass
  /// separately, for every unit.
  UnitGrads(const UnitLayout& layout, at::ScalarType dtype, at::Device device, bool sharded,
            bool each_alone = false);

  [[nodiscard]] bool sharded() const { return sharded_; }

  /// Returns the whole unit, [unit.count], that backward adds to. If sharded, it starts as zeros.
  [[nodiscard]] at::Tensor whole(std::size_t unit);

  /// Returns the gradients that this rank updates with, [part(unit).count()].
  [[nodiscard]] at::Tensor part(std::size_t unit) const;

  /// Returns true if the whole unit exists only temporarily and is separate from its part.
  [[nodiscard]] bool apart(std::size_t unit) const;

  /// Returns `count` elements from `begin` of the buffer of all trainable units. Only if not
  /// sharded.
  [[nodiscard]] at::Tensor range(std::int64_t begin, std::int64_t count) const;

  /// Returns the whole unit and releases it here. The caller reduces it and adds the result to
  /// part(). Only if apart(unit).
  [[nodiscard]] at::Tensor take(std::size_t unit);

  void zero();

  /// Returns the bytes of permanent storage.
  [[nodiscard]] std::int64_t held_bytes() const {
    return static_cast<std::int64_t>(flat_.nbytes());
  }

  /// Returns the peak bytes of temporary whole units, including units that wait for their sums.
  [[nodiscard]] std::int64_t live_peak_bytes() const { return peak_bytes_; }

  /// Records that the memory of a taken unit was released.
  void returned(std::int64_t bytes) { live_bytes_ -= bytes; }

 private:
  const UnitLayout* layout_ = nullptr;
  bool sharded_ = false;
  bool each_alone_ = false;
  at::Tensor flat_;  // all trainable units, or all their parts
  std::vector<at::Tensor> live_;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// Sums the gradients of parameters that several tp ranks hold, if each rank computes only a part
/// of the gradient. These parameters are key heads that query heads of several ranks read, norms of
/// heads, and, with sequence parallelism, all norms. The sum runs before the reduction over data
/// ranks.
class SharedGrads {
 public:
  SharedGrads() = default;
  SharedGrads(std::span<const ParamSpec> specs, const UnitLayout& layout, comm::Communicator& tp);

  /// Sums the shared gradients of a unit in one all-reduce. The unit's gradients must be complete
  /// on every rank. Collective over tp.
  void sum(std::size_t unit, const at::Tensor& whole) const;

 private:
  struct Shared {
    ParamId id = 0;
    std::int64_t begin = 0;  // index of the first element in the message
    std::vector<std::int64_t> shape;
  };

  const UnitLayout* layout_ = nullptr;
  comm::Communicator* tp_ = nullptr;
  std::vector<std::vector<Shared>> of_unit_;
};

}  // namespace trireme::parallel
