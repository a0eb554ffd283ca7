#include "model/fp8_scaling.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/hash/hex.hpp"
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

/// Returns the scales of rows with these largest values.
at::Tensor row_scale(const at::Tensor& amax, ops::Path path) {
  return ops::fp8_scale(amax, at::kFloat8_e4m3fn, /*power_of_two=*/true, path);
}

at::Tensor shaped_like(const at::Tensor& x, const at::Tensor& rows) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = rows.size(1);
  return rows.view(sizes);
}

}  // namespace

Fp8Scaling::Fp8Scaling(Fp8Mode mode, const ModelConfig& config, ops::Path path)
    : mode_(mode),
      path_(path),
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
    scales.push_back(ops::fp8_scale(by_operand.select(1, i), format_of(static_cast<Fp8Operand>(i)),
                                    /*power_of_two=*/false, path_));
  // An operand that was always zero, for example below a matrix of zeros, has no scale yet.
  scales_ = at::stack(scales, 1).view(-1).where(largest > 0, at::ones_like(largest));
}

at::Tensor Fp8Scaling::scales(std::int64_t linear, Fp8Operand first,
                              std::span<const at::Tensor> tensors,
                              const parallel::TensorGroup& group) {
  std::vector<at::Tensor> each;
  for (const at::Tensor& tensor : tensors) each.push_back(ops::amax_of(tensor, path_));
  at::Tensor amax = each.size() == 1 ? each[0].view({1}) : at::stack(each);
  const auto count = static_cast<std::int64_t>(tensors.size());
  if (mode_ == Fp8Mode::delayed) {
    const std::int64_t begin = linear * kOperands + static_cast<std::int64_t>(first);
    at::Tensor seen = amax_.narrow(0, begin, count);
    at::maximum_out(seen, seen, amax);
    // Codes saturate, so a value that is not finite must make the scale NaN.
    if (updates_ > 0) return scales_.narrow(0, begin, count) * (1 + 0 * amax);
  }
  if (group.size() > 1) share_maximum(group.group(), amax);
  const at::ScalarType format = format_of(first);
  for (std::int64_t i = 1; i < count; ++i)
    TRIREME_ASSERT(format_of(static_cast<Fp8Operand>(static_cast<std::int64_t>(first) + i)) ==
                   format);
  return ops::fp8_scale(amax, format, /*power_of_two=*/false, path_);
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

at::ScalarType Fp8Call::format_of(Fp8Operand operand) const {
  return rowwise() ? at::kFloat8_e4m3fn : model::format_of(operand);
}

std::array<at::Tensor, 2> Fp8Call::row_scales(const at::Tensor& a, const at::Tensor& b,
                                              bool shared) const {
  const ops::Path path = scaling_->path();
  at::Tensor of_a = ops::row_amax_of(a, path);
  at::Tensor of_b = ops::row_amax_of(b, path);
  if (shared && group_->size() > 1) {
    const at::Tensor both = at::cat({of_a, of_b});
    share_maximum(group_->group(), both);
    of_a = both.narrow(0, 0, of_a.size(0));
    of_b = both.narrow(0, of_a.size(0), of_b.size(0));
  }
  return {row_scale(of_a, path), row_scale(of_b, path)};
}

at::Tensor Fp8Call::column_scale(const at::Tensor& x, const at::Tensor& scale) const {
  const ops::Path path = scaling_->path();
  return rowwise() ? row_scale(ops::row_amax_of(x.t(), path), path) : scale;
}

ops::Fp8Matrix Fp8Call::quantized(const at::Tensor& x, const at::Tensor& scale, Fp8Operand operand,
                                  ops::Fp8Matrix* columns) const {
  const at::ScalarType format = format_of(operand);
  if (columns == nullptr) return ops::quantize_fp8(x, scale, format, scaling_->path());
  ops::Fp8Both both =
      ops::quantize_fp8_both(x, scale, column_scale(x, scale), format, scaling_->path());
  *columns = std::move(both.by_columns);
  return std::move(both.by_rows);
}

ops::Fp8Matrix Fp8Call::columns_of(ops::Fp8Matrix& kept, const at::Tensor& x,
                                   const at::Tensor& scale, Fp8Operand operand) const {
  if (kept.codes.defined()) return std::exchange(kept, {});
  const at::Tensor rows = as_rows(x);
  return quantized(rows.t(), column_scale(rows, scale), operand);
}

at::Tensor Fp8Call::output(const at::Tensor& x, const at::Tensor& weight, bool keeps_codes) {
  result_ = x.scalar_type();
  const at::Tensor rows = as_rows(x);
  std::array<at::Tensor, 2> each;
  if (rowwise()) {
    each = row_scales(rows, weight, row_parallel_);
  } else {
    scales_ = scaling_->scales(linear_, Fp8Operand::input, std::array{rows, weight}, *group_);
    each = {scales_[0], scales_[1]};
  }
  const ops::Fp8Matrix left =
      quantized(rows, each[0], Fp8Operand::input, keeps_codes ? &input_columns_ : nullptr);
  return shaped_like(x, ops::fp8_product(left, quantized(weight, each[1], Fp8Operand::weight),
                                         result_, /*fast_sums=*/true));
}

at::Tensor Fp8Call::input_grad(const at::Tensor& grad_y, const at::Tensor& weight,
                               bool keeps_codes) {
  const at::Tensor rows = as_rows(grad_y);
  std::array<at::Tensor, 2> each;
  if (rowwise()) {
    each = row_scales(rows, weight.t(), !row_parallel_);
  } else {
    grad_scale_ = scaling_->scales(linear_, Fp8Operand::output_grad, std::array{rows}, *group_);
    each = {grad_scale_[0], scales_[1]};
  }
  const ops::Fp8Matrix left =
      quantized(rows, each[0], Fp8Operand::output_grad, keeps_codes ? &grad_columns_ : nullptr);
  return shaped_like(grad_y,
                     ops::fp8_product(left, quantized(weight.t(), each[1], Fp8Operand::weight),
                                      grad_y.scalar_type(), has_fast_grads()));
}

at::Tensor Fp8Call::weight_grad(const at::Tensor& x, const at::Tensor& grad_y) {
  const at::Tensor scale = rowwise() ? at::Tensor() : scales_[0];
  const at::Tensor grad_scale = rowwise() ? at::Tensor() : grad_scale_[0];
  const ops::Fp8Matrix grads =
      columns_of(grad_columns_, grad_y, grad_scale, Fp8Operand::output_grad);
  const ops::Fp8Matrix inputs = columns_of(input_columns_, x, scale, Fp8Operand::input);
  return ops::fp8_product(grads, inputs, result_, has_fast_grads());
}

}  // namespace trireme::model
