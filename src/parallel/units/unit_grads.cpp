#include "parallel/units/unit_grads.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "device/own_pages.hpp"

namespace trireme {

UnitGrads::UnitGrads(const UnitLayout& layout, at::ScalarType dtype, at::Device device,
                     bool sharded, bool each_alone)
    : layout_(&layout), sharded_(sharded), each_alone_(each_alone), live_(layout.units().size()) {
  const std::int64_t elements = sharded ? layout.trained_parts_count() : layout.trained_count();
  flat_ = own_zero_pages(elements, at::TensorOptions().dtype(dtype).device(device));
}

bool UnitGrads::apart(std::size_t unit) const {
  return sharded_ && (each_alone_ || layout_->grid(unit).shards > 1);
}

at::Tensor UnitGrads::whole(std::size_t unit) {
  const Unit& what = layout_->units()[unit];
  TRIREME_ASSERT(!what.frozen);
  if (!apart(unit)) return sharded_ ? part(unit) : flat_.narrow(0, what.trained_begin, what.count);
  at::Tensor& live = live_[unit];
  if (!live.defined()) {
    live = own_zero_pages(what.count, flat_.options());
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
      sharded_ ? layout_->trained_part_begin(unit) : what.trained_begin + range.begin;
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

}  // namespace trireme
