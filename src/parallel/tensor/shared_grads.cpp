#include "parallel/tensor/shared_grads.hpp"

#include <ATen/ATen.h>

#include "parallel/collectives.hpp"

namespace trireme {
namespace {

bool is_shared(const ParamSpec& spec, int tp) {
  if (!spec.split) return spec.partial;
  const std::int64_t size = spec.shape[static_cast<std::size_t>(spec.split->dim)];
  std::int64_t held = 0;
  for (int rank = 0; rank < tp; ++rank) held += split_range(size, *spec.split, tp, rank).count();
  return held > size;
}

/// Returns the rectangle of `slice` in a tensor of its logical shape.
at::Tensor rectangle(at::Tensor whole, const Slice& slice) {
  for (std::size_t dim = 0; dim < slice.extent.size(); ++dim)
    whole = whole.narrow(static_cast<std::int64_t>(dim), slice.offset[dim], slice.extent[dim]);
  return whole;
}

}  // namespace

SharedGrads::SharedGrads(std::span<const ParamSpec> specs, const UnitLayout& layout,
                         Communicator& tp)
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
  all_reduce(*tp_, message, ReduceOp::sum, "shared grads")->wait();
  for_each([](const at::Tensor& there, const at::Tensor& mine) { mine.copy_(there); });
}

}  // namespace trireme
