#include "parallel/units/unit_grads.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "device/own_pages.hpp"
#include "parallel/collectives.hpp"

namespace trireme::parallel {
namespace {

bool is_shared(const ParamSpec& spec, int tp) {
  if (!spec.split) return spec.partial;
  const std::int64_t size = spec.shape[static_cast<std::size_t>(spec.split->dim)];
  std::int64_t held = 0;
  for (int rank = 0; rank < tp; ++rank) held += split_range(size, *spec.split, tp, rank).count();
  return held > size;
}

/// Returns the part of `whole` (a tensor with the logical shape) that the rectangle of `slice`
/// covers.
at::Tensor rectangle(at::Tensor whole, const Slice& slice) {
  for (std::size_t dim = 0; dim < slice.extent.size(); ++dim)
    whole = whole.narrow(static_cast<std::int64_t>(dim), slice.offset[dim], slice.extent[dim]);
  return whole;
}

}  // namespace

UnitGrads::UnitGrads(const UnitLayout& layout, at::ScalarType dtype, at::Device device,
                     bool sharded, bool each_alone)
    : layout_(&layout), sharded_(sharded), each_alone_(each_alone), live_(layout.units().size()) {
  const std::int64_t elements = sharded ? layout.trainable_parts_count() : layout.trainable_count();
  flat_ = device::own_zero_pages(elements, at::TensorOptions().dtype(dtype).device(device));
}

bool UnitGrads::apart(std::size_t unit) const {
  return sharded_ && (each_alone_ || layout_->grid(unit).shards > 1);
}

at::Tensor UnitGrads::whole(std::size_t unit) {
  const Unit& what = layout_->units()[unit];
  TRIREME_ASSERT(!what.frozen);
  if (!apart(unit))
    return sharded_ ? part(unit) : flat_.narrow(0, what.trainable_begin, what.count);
  at::Tensor& live = live_[unit];
  if (!live.defined()) {
    live = device::own_zero_pages(what.count, flat_.options());
    live_bytes_ += static_cast<std::int64_t>(live.nbytes());
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  }
  return live;
}

at::Tensor UnitGrads::part(std::size_t unit) const {
  const IndexRange range = layout_->part(unit);
  const Unit& what = layout_->units()[unit];
  TRIREME_ASSERT(!what.frozen);
  const std::int64_t begin =
      sharded_ ? layout_->trainable_part_begin(unit) : what.trainable_begin + range.begin;
  return flat_.narrow(0, begin, range.count());
}

at::Tensor UnitGrads::range(std::int64_t begin, std::int64_t count) const {
  TRIREME_ASSERT(!sharded_);
  return flat_.narrow(0, begin, count);
}

at::Tensor UnitGrads::take(std::size_t unit) {
  TRIREME_ASSERT(apart(unit));
  at::Tensor complete = whole(unit);  // zeros if there was no gradient
  live_[unit].reset();
  return complete;
}

void UnitGrads::zero() {
  flat_.zero_();
  std::fill(live_.begin(), live_.end(), at::Tensor());
  live_bytes_ = 0;
}

SharedGrads::SharedGrads(std::span<const ParamSpec> specs, const UnitLayout& layout,
                         comm::Communicator& tp)
    : layout_(&layout), tp_(&tp), of_unit_(layout.units().size()) {
  if (tp.size() == 1) return;
  for (std::size_t unit = 0; unit < of_unit_.size(); ++unit) {
    std::int64_t begin = 0;
    if (layout.units()[unit].frozen) continue;
    for (const ParamId id : layout.units()[unit].params) {
      if (!is_shared(specs[id], tp.size())) continue;
      of_unit_[unit].push_back({id, begin, specs[id].shape});
      begin += Slice::whole(specs[id].shape).count();
    }
  }
}

void SharedGrads::sum(std::size_t unit, const at::Tensor& whole) const {
  const std::vector<Shared>& all = of_unit_[unit];
  if (all.empty()) return;
  const at::NoGradGuard no_grad;
  const std::int64_t elements = all.back().begin + Slice::whole(all.back().shape).count();
  const at::Tensor message = at::zeros({elements}, whole.options());
  const auto for_each = [&](auto&& use) {
    for (const Shared& shared : all) {
      const PlacedParam& param = layout_->param(shared.id);
      const std::int64_t count = Slice::whole(shared.shape).count();
      const at::Tensor mine = whole.narrow(0, param.begin, param.count).view(param.slice.extent);
      use(rectangle(message.narrow(0, shared.begin, count).view(shared.shape), param.slice), mine);
    }
  };
  for_each([](const at::Tensor& there, const at::Tensor& mine) { there.copy_(mine); });
  all_reduce(*tp_, message, comm::ReduceOp::sum, "shared grads")->wait();
  for_each([](const at::Tensor& there, const at::Tensor& mine) { mine.copy_(there); });
}

}  // namespace trireme::parallel
