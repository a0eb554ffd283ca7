#include "parallel/units/unit_weights.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "device/own_pages.hpp"
#include "parallel/collectives.hpp"

namespace trireme::parallel {

UnitWeights::UnitWeights(const UnitLayout& layout, const ShardGroups& groups, at::ScalarType dtype,
                         at::Device device, const GatherOptions& options)
    : layout_(&layout),
      dense_(&groups.dense),
      experts_(&groups.experts),
      options_(options),
      copies_(layout.units().size()) {
  const std::int64_t elements = options_.sharded ? layout.parts_count() : layout.count();
  flat_ = device::own_zero_pages(elements, at::TensorOptions().dtype(dtype).device(device));
}

comm::Communicator& UnitWeights::group_of(std::size_t unit) const {
  return layout_->units()[unit].experts ? *experts_ : *dense_;
}

bool UnitWeights::apart(std::size_t unit) const {
  return options_.sharded && layout_->grid(unit).shards > 1;
}

at::Tensor UnitWeights::part(std::size_t unit) const {
  const IndexRange range = layout_->part(unit);
  const std::int64_t begin =
      options_.sharded ? layout_->part_begin(unit) : layout_->units()[unit].begin + range.begin;
  return flat_.narrow(0, begin, range.count());
}

at::Tensor UnitWeights::whole(std::size_t unit) {
  Copy& copy = copies_[unit];
  if (apart(unit) && !copy.whole.defined()) gather(unit);
  if (copy.gather) {
    copy.gather->wait();
    copy.gather.reset();
  }
  if (apart(unit)) return copy.whole;
  return options_.sharded ? part(unit) : all_in_place(unit);
}

at::Tensor UnitWeights::all_in_place(std::size_t unit) const {
  return flat_.narrow(0, layout_->units()[unit].begin, layout_->units()[unit].count);
}

void UnitWeights::gather(std::size_t unit) {
  Copy& copy = copies_[unit];
  const Unit& what = layout_->units()[unit];
  at::Tensor whole;
  if (apart(unit)) {
    whole = copy.whole = device::own_pages(what.count, flat_.options());
    live_bytes_ += static_cast<std::int64_t>(whole.nbytes());
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  } else {
    whole = all_in_place(unit);
  }
  if (what.count > 0) copy.gather = all_gather(group_of(unit), part(unit), whole, "weights");
}

void UnitWeights::gather_if_missing(std::size_t unit) {
  if (apart(unit) && !copies_[unit].whole.defined()) gather(unit);
  if (const auto experts = layout_->units()[unit].experts_of) gather_if_missing(*experts);
}

void UnitWeights::drop(std::size_t unit) {
  Copy& copy = copies_[unit];
  if (!copy.whole.defined()) return;
  copy.gather.reset();  // waits
  live_bytes_ -= static_cast<std::int64_t>(copy.whole.nbytes());
  copy.whole.reset();
}

UnitWeights::Walk UnitWeights::begin(std::vector<std::size_t> units) {
  if (!options_.sharded) return {};
  if (options_.reshard) {
    for (std::size_t unit = 0; unit < copies_.size(); ++unit)
      if (!layout_->units()[unit].persistent) drop(unit);
  }
  return std::exchange(walk_, {std::move(units)});
}

void UnitWeights::resume(Walk walk) {
  if (options_.sharded) walk_ = std::move(walk);
}

void UnitWeights::use(std::size_t unit) {
  if (!options_.sharded) return;
  TRIREME_ASSERT(is_next(unit));
  const std::size_t ahead = static_cast<std::size_t>(options_.prefetch) + 1;
  const std::size_t end = std::min(walk_.units.size(), walk_.next_use + ahead);
  for (std::size_t i = walk_.next_use; i < end; ++i) gather_if_missing(walk_.units[i]);
  ++walk_.next_use;
}

bool UnitWeights::is_next(std::size_t unit) const {
  return walk_.next_use < walk_.units.size() && walk_.units[walk_.next_use] == unit;
}

void UnitWeights::done(std::size_t unit) {
  if (!options_.sharded || !options_.reshard) return;
  if (is_next(unit)) return;
  drop(unit);
  if (const auto experts = layout_->units()[unit].experts_of) drop(*experts);
}

bool UnitWeights::is_gathering() const {
  return std::ranges::any_of(copies_, [](const Copy& copy) { return copy.gather != nullptr; });
}

void UnitWeights::settle() {
  for (Copy& copy : copies_) copy.gather.reset();
}

void UnitWeights::publish(bool frozen_too) {
  settle();
  for (std::size_t unit = 0; unit < copies_.size(); ++unit) {
    const Unit& what = layout_->units()[unit];
    const bool stays = !apart(unit) || what.persistent;  // whole between uses
    if (what.frozen && !frozen_too && stays) continue;
    drop(unit);
    if (group_of(unit).size() > 1 && stays) gather(unit);
  }
}

}  // namespace trireme::parallel
