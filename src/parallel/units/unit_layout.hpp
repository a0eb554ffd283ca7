#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/param_spec.hpp"
#include "parallel/slice.hpp"

namespace trireme::parallel {

/// The position of a rank among the ranks that hold the same pipeline stages. For experts in a
/// separate grid, `tp` means etp, and the data ranks are the edp ranks.
struct ShardGrid {
  int tp = 1;
  int tp_rank = 0;
  int shards = 1;    // data ranks that together hold one copy of the sharded state
  int shard = 0;     // this rank's index among them
  int replicas = 1;  // number of such copies
  int replica = 0;   // this rank's copy
  int ep = 1;        // ranks over which experts are split
  int ep_rank = 0;
};

/// FSDP unit: parameters that are gathered and reduced together, such as the embedding, a block or
/// the head. Its parameters, after the tensor-parallel split, lie back to back in one flat range.
/// Each starts at a cache line, and padding makes the range divisible by all data ranks.
struct Unit {
  std::string name;
  std::vector<ParamId> params = {};  // ascending
  std::int64_t begin = 0;            // element in a buffer of all units
  std::int64_t count = 0;
  bool persistent = false;           // stays whole on every rank between uses, also under ZeRO-3
  bool frozen = false;               // true: all parameters are frozen; false: none is frozen
  std::int64_t trainable_begin = 0;  // if not frozen: element in a buffer of all trainable units
  std::int64_t part_begin = 0;       // element in a buffer of this rank's parts
  std::int64_t trainable_part_begin = 0;
  bool experts = false;                        // the parameters are experts in a separate grid
  std::optional<std::size_t> experts_of = {};  // the unit of its experts, if it has one
};

/// The part of one parameter that this rank holds, and its position in a unit.
struct PlacedParam {
  Slice slice;  // a rectangle of the logical tensor
  std::size_t unit = 0;
  std::size_t used_with = 0;  // the unit in which it was declared; both units are read together
  std::int64_t begin = 0;     // element of the unit
  std::int64_t count = 0;
  IndexRange owned;  // elements that no lower tp rank also holds
};

/// A range of elements of one parameter, and its position in a unit.
struct ParamSpan {
  ParamId id = 0;
  std::int64_t first = 0;  // element of the rank's rectangle, row-major
  std::int64_t count = 0;
  std::int64_t begin = 0;  // element of the unit
};

/// Computes which elements a rank holds, updates and owns, from the parameter declarations and the
/// rank's position.
///
/// A rank updates its `part` of every unit, one of `shards` equal ranges (the whole unit with one
/// shard). It owns its `share`: the ranks that have the same part split it into equal ranges, one
/// per replica. Every element of a unit is in the share of exactly one data rank. Gradient norm,
/// checkpoint and hashes use shares, so they count each element once. Elements that several tp
/// ranks hold count only on their owner.
class UnitLayout {
 public:
  /// `starts[u]` is the first parameter of unit u, named `names[u]`. Additional units follow in
  /// this order:
  /// - one persistent unit for trainable and one for frozen parameters of fewer than `persist`
  ///   elements (fused parameters count together);
  /// - a persistent unit for trainable parameters of each otherwise frozen unit (adapters);
  /// - if experts have a separate grid: a unit for the experts of each unit, read together with
  ///   that unit.
  UnitLayout(std::span<const ParamSpec> specs, std::span<const ParamId> starts,
             std::span<const std::string> names, const ShardGrid& grid, std::int64_t persist = 0,
             const std::optional<ShardGrid>& experts = {});
  UnitLayout() = default;

  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }

  [[nodiscard]] const PlacedParam& param(ParamId id) const { return params_[id]; }

  // elements of all units, including padding
  [[nodiscard]] std::int64_t count() const { return count_; }

  [[nodiscard]] std::int64_t trainable_count() const { return trainable_count_; }

  /// Returns the units with gradients, master weights and optimizer state, ascending.
  [[nodiscard]] const std::vector<std::size_t>& trainable_units() const { return trainable_units_; }

  /// Return the range of elements relative to the unit's begin.
  [[nodiscard]] IndexRange part(std::size_t unit) const;
  [[nodiscard]] IndexRange share(std::size_t unit) const;

  /// Returns the share relative to the part's begin.
  [[nodiscard]] IndexRange share_of_part(std::size_t unit) const {
    const std::int64_t begin = part(unit).begin;
    return {share(unit).begin - begin, share(unit).end - begin};
  }

  /// Returns the position of a unit's part in a buffer of all parts.
  [[nodiscard]] std::int64_t part_begin(std::size_t unit) const { return units_[unit].part_begin; }

  [[nodiscard]] std::int64_t parts_count() const { return parts_count_; }

  /// Returns the position of a unit's part in a buffer of all trainable parts.
  [[nodiscard]] std::int64_t trainable_part_begin(std::size_t unit) const {
    return units_[unit].trainable_part_begin;
  }

  [[nodiscard]] std::int64_t trainable_parts_count() const { return trainable_parts_count_; }

  /// Returns the range of the expert units of a separate grid; they are at the end of the buffer of
  /// trainable units.
  [[nodiscard]] IndexRange trainable_experts() const { return trainable_experts_; }

  /// Returns the parameters, or parts of parameters, that lie in `range` of a unit, in order.
  [[nodiscard]] std::vector<ParamSpan> spans(std::size_t unit, const IndexRange& range) const;

  /// Returns the elements of the share that this rank owns.
  [[nodiscard]] std::vector<ParamSpan> owned_spans(std::size_t unit) const {
    return owned_spans(unit, share(unit));
  }

  /// Returns the elements of `range` that this rank owns.
  [[nodiscard]] std::vector<ParamSpan> owned_spans(std::size_t unit, const IndexRange& range) const;

  [[nodiscard]] const ShardGrid& dense_grid() const { return grid_; }

  /// Returns the separate grid of experts, if there is one.
  [[nodiscard]] const std::optional<ShardGrid>& expert_grid() const { return experts_; }

  [[nodiscard]] std::int64_t persist() const { return persist_; }

  [[nodiscard]] const ShardGrid& grid(std::size_t unit) const {
    return units_[unit].experts ? *experts_ : grid_;
  }

  /// Returns true if any unit is divided among several ranks.
  [[nodiscard]] bool has_parts() const {
    return grid_.shards > 1 || (experts_ && experts_->shards > 1);
  }

 private:
  void add_unit(Unit unit, std::span<const ParamSpec> specs);

  ShardGrid grid_;
  std::optional<ShardGrid> experts_;
  std::int64_t persist_ = 0;
  std::vector<Unit> units_;
  std::vector<PlacedParam> params_;
  std::int64_t count_ = 0;
  std::vector<std::size_t> trainable_units_;
  std::int64_t trainable_count_ = 0;
  std::int64_t parts_count_ = 0;
  std::int64_t trainable_parts_count_ = 0;
  IndexRange trainable_experts_;
};

}  // namespace trireme::parallel
