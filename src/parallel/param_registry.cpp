#include "parallel/param_registry.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "device/own_pages.hpp"
#include "ops/product.hpp"
#include "parallel/init_values.hpp"

namespace trireme::parallel {
namespace {

ShardGrid shard_grid(const Mesh& mesh) {
  return {mesh.size(Axis::tp),    mesh.rank(Axis::tp),      mesh.size(Axis::shard),
          mesh.rank(Axis::shard), mesh.size(Axis::replica), mesh.rank(Axis::replica)};
}

std::optional<ShardGrid> expert_grid(const Mesh& mesh) {
  if (!mesh.has_expert_grid()) return std::nullopt;
  return ShardGrid{mesh.size(Axis::etp),
                   mesh.rank(Axis::etp),
                   mesh.size(Axis::expert_shard),
                   mesh.rank(Axis::expert_shard),
                   mesh.size(Axis::expert_replica),
                   mesh.rank(Axis::expert_replica),
                   mesh.size(Axis::ep),
                   mesh.rank(Axis::ep)};
}

}  // namespace

void ParamRegistry::begin_unit(std::string name) {
  unit_starts_.push_back(size());
  unit_names_.push_back(std::move(name));
}

ParamId ParamRegistry::declare(ParamSpec spec) {
  TRIREME_ASSERT(layout_.units().empty());
  spec.frozen = spec.frozen || freezes_;
  for (ParamId id = 0; id < size(); ++id) {
    if (specs_[id].name != spec.name) continue;
    TRIREME_ASSERT(specs_[id].shape == spec.shape && specs_[id].frozen == spec.frozen);
    specs_[id].uses += spec.uses;
    return id;
  }
  if (unit_starts_.empty()) begin_unit("");
  specs_.push_back(std::move(spec));
  return size() - 1;
}

void ParamRegistry::allocate(const Mesh& mesh, device::ParamDTypes dtypes, at::Device device) {
  mesh_ = &mesh;
  dtypes_ = dtypes;
  device_ = device;
  const ParallelConfig& parallel = mesh.config();
  const bool sharded = parallel.zero == 3 && mesh.size(Axis::shard) > 1;
  layout_ = UnitLayout(specs_, unit_starts_, unit_names_, shard_grid(mesh),
                       sharded ? parallel.zero_persist : 0, expert_grid(mesh));
  weights_ = UnitWeights(
      layout_, {mesh.shard_group(/*experts=*/false), mesh.shard_group(/*experts=*/true)},
      dtypes.compute, device, {sharded, !keeps_gathered(parallel), parallel.zero_prefetch});
  const bool parts = parallel.zero >= 2 && layout_.has_parts();
  grads_ = UnitGrads(layout_, dtypes.main, device, parts || parallel.reproducible,
                     parallel.reproducible);
  offload_ = parallel.offload == "optimizer";
  if (offload_) host_grads_ = make_state();
  if (offload_ || dtypes.compute != dtypes.main) main_ = make_state();
  uses_seen_.assign(size(), 0);
  by_unit_ = mesh.size(Axis::tp) > 1;
  shared_grads_ = SharedGrads(specs_, layout_, mesh.group(Axis::tp));
}

at::Tensor ParamRegistry::make_state() const {
  const auto options = at::TensorOptions().dtype(dtypes_.main);
  const std::int64_t elements = layout_.trainable_parts_count();
  if (!offload_) return device::own_zero_pages(elements, options.device(device_));
  return at::zeros({elements}, options.pinned_memory(device_.is_cuda()));
}

at::Tensor ParamRegistry::update_grad(std::size_t unit) const {
  return offload_ ? part_of(host_grads_, unit) : grads_.part(unit);
}

void ParamRegistry::fetch_grads() {
  if (!offload_) return;
  const at::NoGradGuard no_grad;
  for (const std::size_t unit : layout_.trainable_units())
    update_grad(unit).copy_(grads_.part(unit));
}

at::Tensor ParamRegistry::part_of(const at::Tensor& state, std::size_t unit) const {
  TRIREME_ASSERT(!layout_.units()[unit].frozen);
  return state.narrow(0, layout_.trainable_part_begin(unit), layout_.part(unit).count());
}

at::Tensor ParamRegistry::master_part(std::size_t unit) const {
  const bool copied = main_.defined() && !layout_.units()[unit].frozen;
  return copied ? part_of(main_, unit) : weights_.part(unit);
}

at::Tensor ParamRegistry::main(ParamId id) const {
  TRIREME_ASSERT(layout_.grid(unit_of(id)).shards == 1);
  return view(master_part(unit_of(id)), {id});
}

at::Tensor ParamRegistry::weight(WeightRef ref) {
  return view(weights_.whole(unit_of(ref.first)), ref);
}

void ParamRegistry::initialize(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (std::size_t unit = 0; unit < layout_.units().size(); ++unit) {
    const IndexRange part = layout_.part(unit);
    for (const ParamSpan& span : layout_.spans(unit, part)) {
      const ParamSpec& spec = specs_[span.id];
      at::Tensor values = master_part(unit).narrow(0, span.begin - part.begin, span.count);
      if (spec.init.kind == InitDistribution::Kind::ones ||
          spec.init.kind == InitDistribution::Kind::zeros) {
        values.fill_(spec.init.kind == InitDistribution::Kind::ones ? spec.init.scale : 0.0);
        continue;
      }
      Slice slice = layout_.param(span.id).slice;
      slice.flat_begin = span.first;
      slice.flat_end = span.first + span.count;
      const auto drawn =
          spec.init.kind == InitDistribution::Kind::normal ? normal_values : uniform_values;
      std::vector<double> unscaled = drawn(seed, spec.name, spec.shape, slice);
      const at::Tensor scaled = at::from_blob(unscaled.data(), {span.count}, at::kDouble)
                                    .mul_(spec.init.scale)
                                    .add_(spec.init.center);
      // Round to the master dtype first, so that frozen and trainable values are rounded equally
      // often.
      values.copy_(scaled.to(dtypes_.main));
    }
  }
  refresh_weights();
}

at::Tensor ParamRegistry::view(const at::Tensor& whole, WeightRef ref) const {
  const PlacedParam& head = layout_.param(ref.first);
  std::vector<std::int64_t> shape = head.slice.extent;
  std::int64_t elements = head.count;
  for (ParamId id = ref.first + 1; id < ref.first + ref.count; ++id) {
    const PlacedParam& next = layout_.param(id);
    TRIREME_ASSERT(specs_[id].fuse_with_previous && next.begin == head.begin + elements);
    shape[0] += next.slice.extent[0];
    elements += next.count;
  }
  return whole.narrow(0, head.begin, elements).view(shape);
}

void ParamRegistry::refresh(bool frozen_too) {
  const at::NoGradGuard no_grad;
  weights_.settle();
  if (main_.defined()) {
    for (const std::size_t unit : layout_.trainable_units())
      weights_.part(unit).copy_(master_part(unit));
  }
  weights_.publish(frozen_too);
}

void ParamRegistry::begin_update(int num_backwards) {
  grads_.zero();
  num_backwards_ = num_backwards;
  std::fill(uses_seen_.begin(), uses_seen_.end(), 0);
  missing_in_unit_.clear();
  for (const Unit& unit : layout_.units()) missing_in_unit_.push_back(unit.params.size());
  if (num_backwards > 0 || !ready_) return;
  for (ParamId id = size(); id-- > 0;)
    if (trained({id})) ready_(id);  // a rank without samples contributes zeros
}

void ParamRegistry::add_gradient(WeightRef ref, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  view(grads_.whole(unit_of(ref.first)), ref).add_(grad);
  gradient_added(ref);
}

void ParamRegistry::add_gradient_of_linear(WeightRef ref, const at::Tensor& x,
                                           const at::Tensor& grad_y) {
  const at::NoGradGuard no_grad;
  const at::Tensor inputs = x.reshape({-1, x.size(-1)});               // [rows, in]
  const at::Tensor grad_rows = grad_y.reshape({-1, grad_y.size(-1)});  // [rows, out]
  ops::add_outer_product(grad_rows, inputs, view(grads_.whole(unit_of(ref.first)), ref));
  gradient_added(ref);
}

void ParamRegistry::gradient_added(WeightRef ref) {
  TRIREME_ASSERT(trained(ref));
  if (!counts_uses_) return;
  for (ParamId id = ref.first + ref.count; id-- > ref.first;) count(id, 1);
}

void ParamRegistry::count_backward() {
  for (ParamId id = size(); id-- > 0;)
    if (trained({id})) count(id, specs_[id].uses);
}

void ParamRegistry::count(ParamId id, int uses) {
  const int in_backward = specs_[id].uses;
  int& seen = uses_seen_[id];
  seen += uses;
  TRIREME_ASSERT(seen <= in_backward * num_backwards_);
  const bool leaves_each_pass = grads_.apart(unit_of(id));
  const bool complete =
      leaves_each_pass ? seen % in_backward == 0 : seen == in_backward * num_backwards_;
  if (complete && ready_) fire_ready(id);
}

void ParamRegistry::fire_ready(ParamId id) {
  if (!by_unit_) {
    ready_(id);
    return;
  }
  const std::size_t unit = unit_of(id);
  if (--missing_in_unit_[unit] > 0) return;
  const std::vector<ParamId>& complete = layout_.units()[unit].params;
  missing_in_unit_[unit] = complete.size();  // reset for the next backward
  shared_grads_.sum(unit, grads_.whole(unit));
  for (auto one = complete.rbegin(); one != complete.rend(); ++one) ready_(*one);
}

}  // namespace trireme::parallel
