#include "parallel/units/unit_layout.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.hpp"

namespace trireme::parallel {
namespace {

constexpr std::int64_t kAlignment =
    64;  // elements; every parameter starts on a cache line in any dtype

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

IndexRange even_range(std::int64_t groups, int parts, int part) {
  return {groups * part / parts, groups * (part + 1) / parts};
}

/// Returns the rectangle of the parameter that this rank holds, and the elements of it that no
/// lower rank holds.
PlacedParam placed(const ParamSpec& spec, const ShardGrid& grid) {
  PlacedParam param;
  param.slice = Slice::whole(spec.shape);
  if (spec.of_experts) {
    const IndexRange held = even_range(spec.shape[0], grid.ep, grid.ep_rank);
    param.slice.offset[0] = held.begin;
    param.slice.extent[0] = held.count();
    param.slice.flat_end = param.slice.rectangle_count();
  }
  const bool is_copy = spec.copies == ParamSpec::Copies::second_of_two;
  if (!spec.split) {
    param.count = param.slice.count();
    param.owned = {0, grid.tp_rank == 0 && !is_copy ? param.count : 0};
    return param;
  }
  TRIREME_ASSERT(spec.split->axis == Axis::tp);
  const auto dim = static_cast<std::size_t>(spec.split->dim);
  const IndexRange rows = split_range(spec.shape[dim], *spec.split, grid.tp, grid.tp_rank);
  param.slice.offset[dim] = rows.begin;
  param.slice.extent[dim] = rows.count();
  param.slice.flat_end = param.slice.rectangle_count();
  param.count = param.slice.count();
  std::int64_t held_before = 0;
  if (spec.split->readers > 0 && grid.tp_rank > 0) {
    TRIREME_ASSERT(dim == 0);  // shared rows are neighbors in the rectangle
    std::int64_t end = 0;      // end of the rows that lower ranks hold
    for (int rank = 0; rank < grid.tp_rank; ++rank)
      end = std::max(end, split_range(spec.shape[dim], *spec.split, grid.tp, rank).end);
    const std::int64_t row = rows.count() == 0 ? 0 : param.count / rows.count();
    held_before = std::clamp<std::int64_t>(end - rows.begin, 0, rows.count()) * row;
  }
  param.owned = {held_before, is_copy ? held_before : param.count};
  return param;
}

/// Returns one flag per parameter: true if the parameter, together with the parameters fused with
/// it, has fewer than `elements` elements.
std::vector<bool> smaller_than(std::int64_t elements, std::span<const ParamSpec> specs) {
  std::vector<bool> small(specs.size());
  for (ParamId first = 0, end = 0; first < specs.size(); first = end) {
    std::int64_t count = 0;
    for (end = first; end < specs.size() && (end == first || specs[end].fuse_with_previous); ++end)
      count += Slice::whole(specs[end].shape).count();
    const bool alone = specs[first].copies != ParamSpec::Copies::none;
    std::fill(small.begin() + static_cast<std::ptrdiff_t>(first),
              small.begin() + static_cast<std::ptrdiff_t>(end), !alone && count < elements);
  }
  return small;
}

}  // namespace

IndexRange split_range(std::int64_t size, const DimSplit& split, int parts, int part) {
  TRIREME_ASSERT(split.grain > 0 && size % split.grain == 0);
  const std::int64_t groups = size / split.grain;
  IndexRange held = even_range(split.readers > 0 ? split.readers : groups, parts, part);
  if (split.readers > 0) {
    TRIREME_ASSERT(split.readers % groups == 0);
    const std::int64_t readers_per_group = split.readers / groups;
    const bool none = held.count() == 0;
    held = {held.begin / readers_per_group, (held.end + readers_per_group - 1) / readers_per_group};
    if (none) held.end = held.begin;
  }
  return {held.begin * split.grain, held.end * split.grain};
}

UnitLayout::UnitLayout(std::span<const ParamSpec> specs, std::span<const ParamId> starts,
                       std::span<const std::string> names, const ShardGrid& grid,
                       std::int64_t persist, const std::optional<ShardGrid>& experts)
    : grid_(grid), experts_(experts), persist_(persist) {
  const std::vector<bool> small = smaller_than(persist, specs);
  params_.resize(specs.size());
  Unit small_trainable{.name = "persistent", .persistent = true};
  Unit small_frozen{.name = "persistent frozen", .persistent = true, .frozen = true};
  // additional units: trainable parameters of units with frozen parameters
  std::vector<Unit> beside;
  std::map<std::size_t, Unit> of_experts;
  for (std::size_t u = 0; u < starts.size(); ++u) {
    const ParamId last = u + 1 < starts.size() ? starts[u + 1] : specs.size();
    const auto all = specs.subspan(starts[u], last - starts[u]);
    Unit unit{names[u]};
    unit.frozen = std::ranges::any_of(all, &ParamSpec::frozen);
    Unit trained{.name = names[u] + " trained", .persistent = true};
    for (ParamId id = starts[u]; id < last; ++id) {
      params_[id].used_with = u;
      const bool frozen = specs[id].frozen;
      if (experts_ && specs[id].of_experts) {
        Unit& with = of_experts[u];
        with.name = names[u] + " experts";
        with.frozen = frozen;
        with.experts = true;
        with.params.push_back(id);
        continue;
      }
      Unit& small_unit = frozen ? small_frozen : small_trainable;
      Unit& with = frozen != unit.frozen ? trained : small[id] ? small_unit : unit;
      with.params.push_back(id);
    }
    add_unit(std::move(unit), specs);
    if (!trained.params.empty()) beside.push_back(std::move(trained));
  }
  for (Unit* persistent : {&small_trainable, &small_frozen})
    if (!persistent->params.empty()) add_unit(std::move(*persistent), specs);
  for (Unit& unit : beside) add_unit(std::move(unit), specs);
  trainable_experts_.begin = trainable_count_;
  for (auto& [unit, of_unit] : of_experts) {
    units_[unit].experts_of = units_.size();
    add_unit(std::move(of_unit), specs);
  }
  trainable_experts_.end = trainable_count_;
}

void UnitLayout::add_unit(Unit unit, std::span<const ParamSpec> specs) {
  const ShardGrid& grid = unit.experts ? *experts_ : grid_;
  unit.begin = count_;
  unit.trainable_begin = trainable_count_;
  unit.part_begin = parts_count_;
  unit.trainable_part_begin = trainable_parts_count_;
  for (const ParamId id : unit.params) {
    PlacedParam param = placed(specs[id], grid);
    param.unit = units_.size();
    param.used_with = params_[id].used_with;
    if (!specs[id].fuse_with_previous) unit.count = rounded_up(unit.count, kAlignment);
    param.begin = unit.count;
    unit.count += param.count;
    params_[id] = std::move(param);
  }
  unit.count = rounded_up(unit.count, kAlignment * grid.shards * grid.replicas);
  count_ += unit.count;
  parts_count_ += unit.count / grid.shards;
  if (!unit.frozen) {
    trainable_units_.push_back(units_.size());
    trainable_count_ += unit.count;
    trainable_parts_count_ += unit.count / grid.shards;
  }
  units_.push_back(std::move(unit));
}

IndexRange UnitLayout::part(std::size_t unit) const {
  const ShardGrid& place = grid(unit);
  const std::int64_t size = units_[unit].count / place.shards;
  return {place.shard * size, (place.shard + 1) * size};
}

IndexRange UnitLayout::share(std::size_t unit) const {
  const IndexRange whole = part(unit);
  const ShardGrid& place = grid(unit);
  const std::int64_t size = whole.count() / place.replicas;
  return {whole.begin + place.replica * size, whole.begin + (place.replica + 1) * size};
}

std::vector<ParamSpan> UnitLayout::spans(std::size_t unit, const IndexRange& range) const {
  std::vector<ParamSpan> result;
  for (const ParamId id : units_[unit].params) {
    const PlacedParam& param = params_[id];
    const std::int64_t begin = std::max(range.begin, param.begin);
    const std::int64_t end = std::min(range.end, param.begin + param.count);
    if (begin < end) result.push_back({id, begin - param.begin, end - begin, begin});
  }
  return result;
}

std::vector<ParamSpan> UnitLayout::owned_spans(std::size_t unit, const IndexRange& range) const {
  std::vector<ParamSpan> result;
  for (const ParamSpan& span : spans(unit, range)) {
    const IndexRange& owned = params_[span.id].owned;
    const std::int64_t first = std::max(span.first, owned.begin);
    const std::int64_t end = std::min(span.first + span.count, owned.end);
    if (first < end)
      result.push_back({span.id, first, end - first, span.begin + first - span.first});
  }
  return result;
}

}  // namespace trireme::parallel
