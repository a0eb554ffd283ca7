#include "parallel/param_registry.hpp"

#include "core/error.hpp"
#include "parallel/init_values.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kAlignment =
    64;  // elements: every parameter starts on a cache line in any dtype

Slice local_slice(const ParamSpec& spec, const Mesh& mesh) {
  Slice slice = Slice::whole(spec.shape);
  if (spec.split_dim >= 0) {
    const auto dim = static_cast<std::size_t>(spec.split_dim);
    const std::int64_t parts = mesh.size(spec.split_axis);
    if (spec.shape[dim] % parts != 0) {
      fail(ErrorKind::usage, "{}: dim {} of size {} is not divisible by {} ranks of {}", spec.name,
           dim, spec.shape[dim], parts, kAxisNames[static_cast<std::size_t>(spec.split_axis)]);
    }
    slice.extent[dim] = spec.shape[dim] / parts;
    slice.offset[dim] = slice.extent[dim] * mesh.rank(spec.split_axis);
    slice.flat_end = slice.rectangle_count();
  }
  return slice;
}

}  // namespace

ParamId ParamRegistry::declare(ParamSpec spec) {
  TRIREME_ASSERT(!main_.defined());
  params_.push_back({std::move(spec), {}, 0, 0, 0});
  return params_.size() - 1;
}

void ParamRegistry::allocate(const Mesh& mesh, ParamDTypes dtypes, at::Device device) {
  dtypes_ = dtypes;
  std::int64_t end = 0;
  for (Param& param : params_) {
    param.slice = local_slice(param.spec, mesh);
    param.count = param.slice.count();
    if (!param.spec.fuse_with_previous) end = (end + kAlignment - 1) / kAlignment * kAlignment;
    param.begin = end;
    end += param.count;
  }
  const std::int64_t flat_size = (end + kAlignment - 1) / kAlignment * kAlignment;
  const auto options = at::TensorOptions().dtype(dtypes.main).device(device);
  main_ = at::zeros({flat_size}, options);
  grad_ = at::zeros({flat_size}, options);
  compute_ =
      dtypes.compute == dtypes.main ? main_ : at::zeros({flat_size}, options.dtype(dtypes.compute));
}

void ParamRegistry::initialize(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (ParamId id = 0; id < size(); ++id) {
    const Param& param = params_[id];
    if (param.spec.init.kind == InitLaw::Kind::ones) {
      main(id).fill_(1.0);
      continue;
    }
    std::vector<double> values =
        normal_values(seed, param.spec.name, param.spec.shape, param.slice);
    const at::Tensor normal = at::from_blob(values.data(), {param.count}, at::kDouble);
    main(id).view({-1}).copy_(normal.mul_(param.spec.init.scale));
  }
  refresh_weights();
}

at::Tensor ParamRegistry::view(const at::Tensor& flat, WeightRef ref) const {
  const Param& head = params_[ref.first];
  std::vector<std::int64_t> shape = head.slice.extent;
  std::int64_t elements = head.count;
  for (ParamId id = ref.first + 1; id < ref.first + ref.count; ++id) {
    TRIREME_ASSERT(params_[id].spec.fuse_with_previous &&
                   params_[id].begin == head.begin + elements);
    shape[0] += params_[id].slice.extent[0];
    elements += params_[id].count;
  }
  return flat.narrow(0, head.begin, elements).view(shape);
}

void ParamRegistry::refresh_weights() {
  const at::NoGradGuard no_grad;
  if (!compute_.is_same(main_)) compute_.copy_(main_);
}

void ParamRegistry::begin_update(int num_backwards) {
  grad_.zero_();
  num_backwards_ = num_backwards;
  for (Param& param : params_) param.uses_seen = 0;
  if (num_backwards > 0 || !ready_) return;
  for (ParamId id = size(); id-- > 0;) ready_(id);  // a rank without samples takes part with zeros
}

void ParamRegistry::add_gradient(WeightRef ref, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  view(grad_, ref).add_(grad);
  gradient_added(ref);
}

void ParamRegistry::add_gradient_of_linear(WeightRef ref, const at::Tensor& x,
                                           const at::Tensor& grad_y) {
  const at::NoGradGuard no_grad;
  const at::Tensor inputs = x.reshape({-1, x.size(-1)});               // [rows, in]
  const at::Tensor grad_rows = grad_y.reshape({-1, grad_y.size(-1)});  // [rows, out]
  add_gradient(ref, grad_rows.t().mm(inputs));
}

void ParamRegistry::gradient_added(WeightRef ref) {
  for (ParamId id = ref.first + ref.count; id-- > ref.first;) {
    Param& param = params_[id];
    ++param.uses_seen;
    TRIREME_ASSERT(param.uses_seen <= param.spec.uses * num_backwards_);
    if (param.uses_seen == param.spec.uses * num_backwards_ && ready_) ready_(id);
  }
}

}  // namespace trireme
