#include "ops/dropout.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/cuda/dropout.hpp"
#include "ops/operations.hpp"

namespace trireme::ops {
namespace {

constexpr std::int64_t kLow32 = 0xffffffff;

void check_mask(const at::Tensor& x, const DropoutMask& mask) {
  if (!(mask.p >= 0.0 && mask.p < 1.0)) {
    fail(ErrorKind::usage, "model.dropout = {}, must be in [0, 1)", mask.p);
  }
  const auto fit = x.dim() == 3 && mask.samples.dim() == 1 && mask.positions.dim() == 2 &&
                   mask.samples.scalar_type() == at::kLong &&
                   mask.positions.scalar_type() == at::kLong && mask.samples.size(0) == x.size(0) &&
                   mask.positions.size(0) == x.size(0) && mask.positions.size(1) == x.size(1);
  if (!fit) {
    fail(ErrorKind::internal,
         "dropout: x {}, samples {}, positions {}: must be [B, T, F], [B] and [B, T] int64",
         x.sizes(), mask.samples.sizes(), mask.positions.sizes());
  }
}

/// Returns the high and low word of constant * x for x in [0, 2^32), in int64 without overflow.
std::array<at::Tensor, 2> wide_product(std::int64_t constant, const at::Tensor& x) {
  const auto by_low = x * (constant & 0xffff);
  const auto by_high = x * (constant >> 16);
  const auto high = by_high.add(by_low.bitwise_right_shift(16)).bitwise_right_shift(16);
  const auto low =
      by_high.bitwise_and(0xffff).bitwise_left_shift(16).add(by_low).bitwise_and(kLow32);
  return {high, low};
}

/// Returns the four words of philox4x32 for tensors of counter words, on any device.
std::array<at::Tensor, 4> plain_philox(std::uint64_t key, std::array<at::Tensor, 4> c) {
  auto key0 = static_cast<std::int64_t>(key & 0xffffffff);
  auto key1 = static_cast<std::int64_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto [high0, low0] = wide_product(0xD2511F53, c[0]);
    const auto [high1, low1] = wide_product(0xCD9E8D57, c[2]);
    c = {high1.bitwise_xor(c[1]).bitwise_xor(key0), low1, high0.bitwise_xor(c[3]).bitwise_xor(key1),
         low0};
    key0 = (key0 + 0x9E3779B9) & kLow32;
    key1 = (key1 + 0xBB67AE85) & kLow32;
  }
  return c;
}

/// Returns the words [B, T, F] of the mask as int64.
at::Tensor plain_words(const at::Tensor& x, const DropoutMask& mask) {
  const auto device = x.device();
  const auto first_counter = mask.first_feature / 4;
  const auto last_counter = (mask.first_feature + x.size(2) + 3) / 4;
  const auto counters =
      at::arange(first_counter, last_counter, at::TensorOptions(at::kLong).device(device));
  const auto samples = mask.samples.to(device).view({-1, 1, 1});
  const auto positions = mask.positions.to(device).unsqueeze(2);
  const std::vector<std::int64_t> shape{x.size(0), x.size(1), counters.size(0)};
  const auto words = plain_philox(
      dropout_key(mask),
      {counters.expand(shape), positions.expand(shape), samples.bitwise_and(kLow32).expand(shape),
       samples.bitwise_right_shift(32).bitwise_and(kLow32).expand(shape)});
  const auto flat = at::stack({words[0], words[1], words[2], words[3]}, -1).flatten(2);
  return flat.narrow(2, mask.first_feature - 4 * first_counter, x.size(2));
}

at::Tensor plain_dropout(const at::Tensor& x, const DropoutMask& mask) {
  const auto kept = plain_words(x, mask).ge(static_cast<std::int64_t>(drop_threshold(mask.p)));
  return (x.to(accumulate_type(x)) * (1.0 / (1.0 - mask.p))).mul_(kept).to(x.scalar_type());
}

bool cpu_accepts_mask(const at::Tensor& x, const DropoutMask& mask) {
  return cpu_accepts(x) && mask.samples.is_cpu() && mask.positions.is_cpu();
}

at::Tensor cpu_dropout(const at::Tensor& x_in, const DropoutMask& mask) {
  const auto x = x_in.contiguous();
  auto y = at::empty_like(x);
  const auto width = x.size(2);
  const auto samples = mask.samples.unsqueeze(1).expand(mask.positions.sizes()).contiguous();
  const auto positions = mask.positions.contiguous();
  for_row_chunks(x.size(0) * x.size(1), [&](std::int64_t first, std::int64_t last) {
    kernels::table().dropout({.element = element_of(x),
                              .x = element_at(x, first * width),
                              .y = element_at(y, first * width),
                              .samples = samples.data_ptr<std::int64_t>() + first,
                              .positions = positions.data_ptr<std::int64_t>() + first,
                              .key = dropout_key(mask),
                              .first_feature = mask.first_feature,
                              .rows = last - first,
                              .width = width,
                              .threshold = drop_threshold(mask.p),
                              .factor = static_cast<float>(1.0 / (1.0 - mask.p))});
  });
  return y;
}

bool cuda_accepts_mask(const at::Tensor& x, const DropoutMask& /*mask*/) {
  return cuda::accepts_dropout(x);
}

struct DropoutRow {
  bool (*accepts)(const at::Tensor& x, const DropoutMask& mask);
  decltype(&plain_dropout) apply;
};

constexpr std::array kDropout{
    DropoutRow{cpu_accepts_mask, cpu_dropout},
    DropoutRow{cuda_accepts_mask, cuda::dropout},
    DropoutRow{nullptr, plain_dropout},
};

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct SavedMask : torch::CustomClassHolder {
  SavedMask(DropoutMask given, Path chosen) : mask(std::move(given)), path(chosen) {}

  DropoutMask mask;
  Path path;
};

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const DropoutMask& mask,
                            Path path) {
    ctx->saved_data["mask"] = c10::IValue::make_capsule(c10::make_intrusive<SavedMask>(mask, path));
    return dropout_apply(x, mask, path);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto holder = ctx->saved_data["mask"].toCapsule();
    const auto& saved = static_cast<const SavedMask&>(*holder);
    return {dropout_apply(grads[0], saved.mask, saved.path), {}, {}};
  }
};

}  // namespace

std::uint64_t dropout_key(const DropoutMask& mask) {
  const auto counter_high = (std::uint64_t{mask.layer} << 32) | mask.op;
  const auto words = philox4x32(mask.key, mask.step, counter_high);
  return (std::uint64_t{words[1]} << 32) | words[0];
}

std::uint32_t drop_threshold(double p) {
  return static_cast<std::uint32_t>(p * 4294967296.0);
}

at::Tensor dropout_apply(const at::Tensor& x, const DropoutMask& mask, Path path) {
  check_mask(x, mask);
  const at::NoGradGuard no_grad;
  return choose(path_of(Operation::dropout, path), kDropout, x, mask).apply(x, mask);
}

at::Tensor dropout_philox(const at::Tensor& x, const DropoutMask& mask, Path path) {
  if (mask.p == 0.0) return x;
  return DropoutFunction::apply(x, mask, path);
}

}  // namespace trireme::ops
