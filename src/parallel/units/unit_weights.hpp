#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "parallel/units/unit_layout.hpp"

namespace trireme {

/// What gathering leaves to choose.
struct GatherOptions {
  bool sharded = false;       // ZeRO-3: a rank keeps its parts alone
  bool reshard = true;        // sharded: gathered copies go after each use, not after the update
  std::int64_t prefetch = 1;  // sharded: units gathered ahead of the one in use
};

/// The ranks that hold one copy of a unit together.
struct ShardGroups {
  Communicator& dense;
  Communicator& experts;  // of units of experts in their own grid
};

/// The weights that the model computes with, in units.
///
/// Not sharded, every rank keeps all units whole; after an update the parts of other ranks arrive
/// by all-gathers, which run behind the next forward pass and are waited for at a unit's first use.
/// Sharded, a rank keeps its parts, and a unit is whole from use() to done() only: a walk says in
/// which order units will be used, and those next in it are gathered while this one computes. All
/// ranks of the group make the same calls in the same order. A unit's experts come and go with it.
class UnitWeights {
 public:
  UnitWeights() = default;
  UnitWeights(const UnitLayout& layout, const ShardGroups& groups, at::ScalarType dtype,
              at::Device device, const GatherOptions& options);

  /// This rank's part, [part(unit).count()].
  [[nodiscard]] at::Tensor part(std::size_t unit) const;

  /// All of a unit, [unit.count], complete. Sharded: gathers it if use() has not.
  [[nodiscard]] at::Tensor whole(std::size_t unit);

  /// Units in the order of their uses, each time one is used.
  struct Walk {
    std::vector<std::size_t> units;
    std::size_t next_use = 0;
  };

  /// The uses to come; what the walk before left gathered goes. Returns that walk. Sharded only, as
  /// the next three: else nothing happens.
  Walk begin(std::vector<std::size_t> units);
  /// After a walk in the middle of another: goes on with that.
  void resume(Walk walk);
  /// The next unit of the walk is about to be read.
  void use(std::size_t unit);
  /// It has been: unless it is next again, its memory may be given to another.
  void done(std::size_t unit);

  /// Waits for every gather in flight: the parts may change.
  void settle();
  /// The parts have changed, those of frozen units only with `frozen_too`: what was gathered of
  /// them before is gone.
  void publish(bool frozen_too);

  /// Bytes that a rank holds all the time.
  [[nodiscard]] std::int64_t held_bytes() const {
    return static_cast<std::int64_t>(flat_.nbytes());
  }

  /// Bytes of gathered copies: now, and the most at any time.
  [[nodiscard]] std::int64_t gathered_bytes() const { return live_bytes_; }

  [[nodiscard]] std::int64_t gathered_peak_bytes() const { return peak_bytes_; }

 private:
  struct Copy {
    at::Tensor whole;  // sharded: the gathered copy while there is one
    WorkPtr gather;    // in flight
  };

  void gather(std::size_t unit);
  void gather_if_missing(std::size_t unit);
  void drop(std::size_t unit);
  [[nodiscard]] Communicator& group_of(std::size_t unit) const;
  /// A rank keeps a part alone.
  [[nodiscard]] bool apart(std::size_t unit) const;
  [[nodiscard]] at::Tensor all_in_place(std::size_t unit) const;
  [[nodiscard]] bool is_next(std::size_t unit) const;

  const UnitLayout* layout_ = nullptr;
  Communicator* dense_ = nullptr;
  Communicator* experts_ = nullptr;
  GatherOptions options_;
  at::Tensor flat_;  // all units, or all parts
  std::vector<Copy> copies_;
  Walk walk_;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// use() and done() around a scope.
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

}  // namespace trireme
