#include "model/fp8_scaling.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "core/error.hpp"
#include "core/hash/hex.hpp"
#include "ops/fp8.hpp"
#include "parallel/collectives.hpp"

namespace trireme::model {
namespace {

constexpr std::int64_t kOperands = 3;
constexpr const char* kAmaxPurpose = "fp8 amax";
constexpr std::size_t kDigits = 8;  // an fp32 number in hexadecimal

at::ScalarType format_of(Fp8Operand operand) {
  return operand == Fp8Operand::output_grad ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
}

void share_maximum(comm::Communicator& group, const at::Tensor& amax) {
  parallel::all_reduce(group, amax, comm::ReduceOp::max, kAmaxPurpose)->wait();
}

at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

at::Tensor shaped_like(const at::Tensor& x, const at::Tensor& rows) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return rows.view(sizes);
}

}  // namespace

Fp8Scaling::Fp8Scaling(Fp8Mode mode, const ModelConfig& config)
    : mode_(mode),
      linears_(fp8_linears(config)),
      num_operands_(config.num_layers * static_cast<std::int64_t>(kNumFp8Linears) * kOperands) {}

void Fp8Scaling::prepare(at::Device device) {
  if (mode_ != Fp8Mode::delayed) return;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  amax_ = at::zeros({num_operands_}, options);
  history_ = at::zeros({kHistory, num_operands_}, options);
  scales_ = at::ones({num_operands_}, options);
}

void Fp8Scaling::begin_update() {
  if (mode_ == Fp8Mode::delayed) amax_.zero_();
}

void Fp8Scaling::end_update(comm::Communicator& world, bool applied) {
  if (mode_ != Fp8Mode::delayed) return;
  const at::NoGradGuard no_grad;
  amax_.nan_to_num_(0, 0, 0);
  if (world.size() > 1) share_maximum(world, amax_);
  if (!applied) return;
  history_ = at::cat({amax_.unsqueeze(0), history_.narrow(0, 0, kHistory - 1)});
  updates_ = std::min(updates_ + 1, kHistory);
  set_scales();
}

void Fp8Scaling::set_scales() {
  const at::Tensor largest = history_.amax(0);
  const at::Tensor by_operand = largest.view({-1, kOperands});
  std::vector<at::Tensor> scales;
  for (std::int64_t i = 0; i < kOperands; ++i)
    scales.push_back(
        ops::fp8_scale(by_operand.select(1, i), format_of(static_cast<Fp8Operand>(i))));
  // An operand that was always zero, for example below a matrix of zeros, has no scale yet.
  scales_ = at::stack(scales, 1).view(-1).where(largest > 0, at::ones_like(largest));
}

at::Tensor Fp8Scaling::scales(std::int64_t linear, Fp8Operand first,
                              std::span<const at::Tensor> tensors,
                              const parallel::TensorGroup& group) {
  std::vector<at::Tensor> each;
  for (const at::Tensor& tensor : tensors) each.push_back(ops::amax_of(tensor));
  at::Tensor amax = at::stack(each);
  const auto count = static_cast<std::int64_t>(tensors.size());
  if (mode_ == Fp8Mode::delayed) {
    const std::int64_t begin = linear * kOperands + static_cast<std::int64_t>(first);
    at::Tensor seen = amax_.narrow(0, begin, count);
    at::maximum_out(seen, seen, amax);
    // Codes saturate, so a value that is not finite must make the scale NaN.
    if (updates_ > 0) return scales_.narrow(0, begin, count) * (1 + 0 * amax);
  }
  if (group.size() > 1) share_maximum(group.group(), amax);
  std::vector<at::Tensor> scales;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto operand = static_cast<Fp8Operand>(static_cast<std::int64_t>(first) + i);
    scales.push_back(ops::fp8_scale(amax[i], format_of(operand)));
  }
  return at::stack(scales);
}

std::optional<std::string> Fp8Scaling::history() const {
  if (mode_ != Fp8Mode::delayed || updates_ == 0) return std::nullopt;
  const at::Tensor values = history_.narrow(0, 0, updates_).cpu().contiguous();
  std::string text;
  const float* value = values.const_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    text += hex_text(std::bit_cast<std::uint32_t>(value[i]));
  return text;
}

void Fp8Scaling::restore(const std::string& text) {
  if (mode_ != Fp8Mode::delayed) return;
  const std::size_t row = static_cast<std::size_t>(num_operands_) * kDigits;
  const std::size_t rows = text.size() / row;
  if (text.size() % row != 0 || rows == 0 || rows > static_cast<std::size_t>(kHistory) ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    fail(
        ErrorKind::data,
        "fp8.amax_history has {} characters. It must have a multiple of {}, at most {}, of hexadecimal digits for this model.",
        text.size(), row, row * static_cast<std::size_t>(kHistory));
  at::Tensor values = at::zeros({kHistory, num_operands_}, at::kFloat);
  float* value = values.mutable_data_ptr<float>();
  for (std::size_t i = 0; i * kDigits < text.size(); ++i)
    value[i] = std::bit_cast<float>(
        static_cast<std::uint32_t>(std::stoul(text.substr(i * kDigits, kDigits), nullptr, 16)));
  history_ = values.to(history_.device());
  updates_ = static_cast<std::int64_t>(rows);
  set_scales();
}

at::Tensor Fp8Call::rowwise_product(const at::Tensor& a, const at::Tensor& b, bool shared) const {
  at::Tensor of_a = ops::row_amax_of(a);
  at::Tensor of_b = ops::row_amax_of(b);
  if (shared && group_->size() > 1) {
    const at::Tensor both = at::cat({of_a, of_b});
    share_maximum(group_->group(), both);
    of_a = both.narrow(0, 0, of_a.size(0));
    of_b = both.narrow(0, of_a.size(0), of_b.size(0));
  }
  const auto quantized = [](const at::Tensor& x, const at::Tensor& amax) {
    constexpr at::ScalarType kFormat = at::kFloat8_e4m3fn;
    return ops::quantize_fp8(x, ops::fp8_scale(amax, kFormat, /*power_of_two=*/true), kFormat);
  };
  // On a GPU, the kernels with one scale per row are fast only with fast sums.
  return ops::fp8_product(quantized(a, of_a), quantized(b, of_b), a.scalar_type(),
                          /*fast_sums=*/true);
}

at::Tensor Fp8Call::output(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor rows = as_rows(x);
  if (rowwise()) return shaped_like(x, rowwise_product(rows, weight, row_parallel_));
  const std::array<at::Tensor, 2> operands{rows, weight};
  scales_ = scaling_->scales(linear_, Fp8Operand::input, operands, *group_);
  return shaped_like(
      x, ops::fp8_product(ops::quantize_fp8(rows, scales_[0], format_of(Fp8Operand::input)),
                          ops::quantize_fp8(weight, scales_[1], format_of(Fp8Operand::weight)),
                          x.scalar_type(), /*fast_sums=*/true));
}

at::Tensor Fp8Call::input_grad(const at::Tensor& grad_y, const at::Tensor& weight) {
  const at::Tensor rows = as_rows(grad_y);
  if (rowwise()) return shaped_like(grad_y, rowwise_product(rows, weight.t(), !row_parallel_));
  const std::array<at::Tensor, 1> operands{rows};
  grad_scale_ = scaling_->scales(linear_, Fp8Operand::output_grad, operands, *group_);
  return shaped_like(
      grad_y,
      ops::fp8_product(ops::quantize_fp8(rows, grad_scale_[0], format_of(Fp8Operand::output_grad)),
                       ops::quantize_fp8(weight.t(), scales_[1], format_of(Fp8Operand::weight)),
                       grad_y.scalar_type(), /*fast_sums=*/false));
}

at::Tensor Fp8Call::weight_grad(const at::Tensor& x, const at::Tensor& grad_y) const {
  const at::Tensor inputs = as_rows(x).t();
  const at::Tensor grads = as_rows(grad_y).t();
  if (rowwise()) return rowwise_product(grads, inputs, /*shared=*/false);
  return ops::fp8_product(
      ops::quantize_fp8(grads, grad_scale_[0], format_of(Fp8Operand::output_grad)),
      ops::quantize_fp8(inputs, scales_[0], format_of(Fp8Operand::input)), x.scalar_type(),
      /*fast_sums=*/false);
}

}  // namespace trireme::model
