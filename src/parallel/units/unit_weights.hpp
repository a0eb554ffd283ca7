#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "parallel/units/unit_layout.hpp"

namespace trireme::parallel {

/// Options for gathering weights.
struct GatherOptions {
  bool sharded = false;  // ZeRO-3: a rank stores only its parts
  // sharded: free gathered copies after each use; false: after the update
  bool reshard = true;
  std::int64_t prefetch = 1;  // sharded: units gathered ahead of the one in use
};

/// The ranks that together hold one copy of a unit.
struct ShardGroups {
  comm::Communicator& dense;
  comm::Communicator& experts;  // for expert units in a separate grid
};

/// The weights that the model computes with, by FSDP unit.
///
/// If weights are not sharded, every rank stores all units whole. After an update, all-gathers
/// fetch the parts of the other ranks. They run during the next forward pass, and the first use of
/// a unit waits for its all-gather. If weights are sharded, a rank stores only its parts, and a
/// unit is whole only from use() to done(). A walk lists the order of uses, so that the next units
/// are gathered while the current one computes. All ranks of the group make the same calls in the
/// same order. The expert unit of a block is gathered and freed together with the unit of the
/// block.
class UnitWeights {
 public:
  UnitWeights() = default;
  UnitWeights(const UnitLayout& layout, const ShardGroups& groups, at::ScalarType dtype,
              at::Device device, const GatherOptions& options);

  /// Returns this rank's part, [part(unit).count()].
  [[nodiscard]] at::Tensor part(std::size_t unit) const;

  /// Returns the complete unit, [unit.count]. If sharded, gathers it unless use() has done so.
  [[nodiscard]] at::Tensor whole(std::size_t unit);

  /// The order in which units are used, with one entry for each use.
  struct Walk {
    std::vector<std::size_t> units;
    std::size_t next_use = 0;
  };

  /// Starts a walk and frees the units that the previous walk left gathered. Returns the previous
  /// walk. begin(), resume(), use() and done() do nothing if not sharded.
  Walk begin(std::vector<std::size_t> units);
  /// Continues `walk` after another walk interrupted it.
  void resume(Walk walk);
  /// Must be called before the next unit of the walk is read.
  void use(std::size_t unit);
  /// Must be called after the unit was read. Frees its memory, unless the walk uses the same unit
  /// next.
  void done(std::size_t unit);

  /// Returns true if a gather is pending.
  [[nodiscard]] bool is_gathering() const;

  /// Waits for every pending gather. Afterwards, the caller may change the parts.
  void settle();
  /// Must be called after the parts have changed; parts of frozen units only with `frozen_too`.
  /// Discards earlier gathered copies.
  void publish(bool frozen_too);

  /// Returns the bytes of permanent storage.
  [[nodiscard]] std::int64_t held_bytes() const {
    return static_cast<std::int64_t>(flat_.nbytes());
  }

  /// Returns the current bytes of gathered copies; gathered_peak_bytes() is their maximum.
  [[nodiscard]] std::int64_t gathered_bytes() const { return live_bytes_; }

  [[nodiscard]] std::int64_t gathered_peak_bytes() const { return peak_bytes_; }

 private:
  struct Copy {
    at::Tensor whole;      // sharded: the gathered copy, if any
    comm::WorkPtr gather;  // the gather in flight
  };

  void gather(std::size_t unit);
  void gather_if_missing(std::size_t unit);
  void drop(std::size_t unit);
  [[nodiscard]] comm::Communicator& group_of(std::size_t unit) const;
  /// Returns true if a rank stores only a part of the unit.
  [[nodiscard]] bool apart(std::size_t unit) const;
  [[nodiscard]] at::Tensor all_in_place(std::size_t unit) const;
  [[nodiscard]] bool is_next(std::size_t unit) const;

  const UnitLayout* layout_ = nullptr;
  comm::Communicator* dense_ = nullptr;
  comm::Communicator* experts_ = nullptr;
  GatherOptions options_;
  at::Tensor flat_;  // all units, or all parts
  std::vector<Copy> copies_;
  Walk walk_;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// Calls use() and done() around a scope.
class UnitUse {
 public:
  UnitUse(UnitWeights& weights, std::size_t unit) : weights_(weights), unit_(unit) {
    weights.use(unit);
  }

  UnitUse(const UnitUse&) = delete;
  UnitUse& operator=(const UnitUse&) = delete;

  ~UnitUse() { weights_.done(unit_); }

 private:
  UnitWeights& weights_;
  std::size_t unit_;
};

}  // namespace trireme::parallel
