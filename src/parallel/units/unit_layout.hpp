#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/param_spec.hpp"
#include "parallel/slice.hpp"

namespace trireme {

/// A rank's place among those that hold the same model, or of experts in a grid of their own (tp is
/// etp, and the data ranks are those of edp).
struct ShareGrid {
  int tp = 1;
  int tp_rank = 0;
  int shards = 1;    // data ranks that hold one copy of the sharded state together
  int shard = 0;     // this rank's among them
  int replicas = 1;  // such copies
  int replica = 0;   // this rank's
  int ep = 1;        // ranks that experts are dealt over
  int ep_rank = 0;
};

/// What ranks share, gather and reduce as one: the embedding, a block, the head. Its parameters, as
/// tensor parallelism left them here, lie back to back in one flat range, each at a cache line, and
/// padding makes it divisible by all data ranks.
struct Unit {
  std::string name;
  std::vector<ParamId> params = {};  // rising
  std::int64_t begin = 0;            // element in a buffer of all units
  std::int64_t count = 0;
  bool persistent = false;         // whole on every rank between uses, also under ZeRO-3
  bool frozen = false;             // all its parameters are; else none is
  std::int64_t trained_begin = 0;  // not frozen: element in a buffer of all that are trained
  std::int64_t part_begin = 0;     // the same of this rank's parts
  std::int64_t trained_part_begin = 0;
  bool experts = false;                        // in their own grid
  std::optional<std::size_t> experts_of = {};  // the unit of its experts, if it has one
};

/// One parameter as this rank holds it.
struct PlacedParam {
  Slice slice;  // of the logical tensor: a rectangle
  std::size_t unit = 0;
  std::size_t used_with = 0;  // the unit that it was declared in: whose walk reads it
  std::int64_t begin = 0;     // element of the unit
  std::int64_t count = 0;
  IndexRange owned;  // of its elements, those that no lower rank of tp holds as well
};

/// A range of one parameter's elements inside a unit.
struct ParamSpan {
  ParamId id = 0;
  std::int64_t first = 0;  // element of the rank's rectangle, row-major
  std::int64_t count = 0;
  std::int64_t begin = 0;  // element of the unit
};

/// Which elements a rank holds, updates and answers for: a pure function of the declarations and of
/// its place.
///
/// Of every unit a rank updates its `part`, one of `shards` equal ranges (with one shard: all of
/// it), and answers for its `share`, the part's range of this replica: every element of a unit is
/// in exactly one share of the data ranks. Norm, checkpoint and hashes count shares, and of
/// elements that several ranks of tp hold only the owner's.
class UnitLayout {
 public:
  /// `starts[u]`: the first parameter of unit u, named `names[u]`. Parameters of fewer than
  /// `persist` elements (fused ones together) lie in one more unit behind these, if there are any: a
  /// persistent one; frozen ones in another. What is trained beside frozen parameters of its unit
  /// (adapters) is a persistent unit behind all others. With a grid of their own the experts of each
  /// unit are one more behind these, which is read with it.
  UnitLayout(std::span<const ParamSpec> specs, std::span<const ParamId> starts,
             std::span<const std::string> names, const ShareGrid& grid, std::int64_t persist = 0,
             const std::optional<ShareGrid>& experts = {});
  UnitLayout() = default;

  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }

  [[nodiscard]] const PlacedParam& param(ParamId id) const { return params_[id]; }

  [[nodiscard]] std::int64_t count() const { return count_; }  // elements of all units, padding too

  [[nodiscard]] std::int64_t trained_count() const { return trained_count_; }

  /// Those with gradients, main weights and optimizer state, rising.
  [[nodiscard]] const std::vector<std::size_t>& trained_units() const { return trained_units_; }

  /// Elements of unit u, relative to its begin.
  [[nodiscard]] IndexRange part(std::size_t unit) const;
  [[nodiscard]] IndexRange share(std::size_t unit) const;

  /// The share, relative to the part's begin.
  [[nodiscard]] IndexRange share_of_part(std::size_t unit) const {
    const std::int64_t begin = part(unit).begin;
    return {share(unit).begin - begin, share(unit).end - begin};
  }

  /// Where the part of a unit lies in a buffer of all parts.
  [[nodiscard]] std::int64_t part_begin(std::size_t unit) const { return units_[unit].part_begin; }

  [[nodiscard]] std::int64_t parts_count() const { return parts_count_; }

  /// The same of a buffer of all trained parts.
  [[nodiscard]] std::int64_t trained_part_begin(std::size_t unit) const {
    return units_[unit].trained_part_begin;
  }

  [[nodiscard]] std::int64_t trained_parts_count() const { return trained_parts_count_; }

  /// Of the buffer of all trained units, those of experts in their own grid: its end.
  [[nodiscard]] IndexRange trained_experts() const { return trained_experts_; }

  /// The parameters' elements in `range` of a unit, in order.
  [[nodiscard]] std::vector<ParamSpan> spans(std::size_t unit, const IndexRange& range) const;

  /// Of the share, the elements that this rank owns.
  [[nodiscard]] std::vector<ParamSpan> owned_spans(std::size_t unit) const {
    return owned_spans(unit, share(unit));
  }

  /// The same of any range.
  [[nodiscard]] std::vector<ParamSpan> owned_spans(std::size_t unit, const IndexRange& range) const;

  [[nodiscard]] const ShareGrid& grid(std::size_t unit) const {
    return units_[unit].experts ? *experts_ : grid_;
  }

  /// Whether any unit lies in parts of several ranks.
  [[nodiscard]] bool has_parts() const {
    return grid_.shards > 1 || (experts_ && experts_->shards > 1);
  }

 private:
  void place(Unit unit, std::span<const ParamSpec> specs);

  ShareGrid grid_;
  std::optional<ShareGrid> experts_;
  std::vector<Unit> units_;
  std::vector<PlacedParam> params_;
  std::int64_t count_ = 0;
  std::vector<std::size_t> trained_units_;
  std::int64_t trained_count_ = 0;
  std::int64_t parts_count_ = 0;
  std::int64_t trained_parts_count_ = 0;
  IndexRange trained_experts_;
};

}  // namespace trireme
