/// Compares every operation that has a cuda row with the plain path in fp64 on the same GPU.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "comm/self/self_communicator.hpp"
#include "core/exact_sum.hpp"
#include "core/philox.hpp"
#include "device/device.hpp"
#include "objective/vocab_chunk.hpp"
#include "ops/cuda/adamw.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/cuda/dropout.hpp"
#include "ops/cuda/embedding.hpp"
#include "ops/cuda/fp8.hpp"
#include "ops/cuda/gated_activation.hpp"
#include "ops/cuda/grad_norm.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope.hpp"
#include "ops/embedding.hpp"
#include "ops/product.hpp"
#include "optim/block_squares.hpp"
#include "optim/grad_norm.hpp"
#include "support/carried_sum.hpp"

namespace trireme::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

struct RowOperation {
  const char* name;
  bool (*accepts)(const at::Tensor& x);  // the cuda row accepts the first input
  /// Returns inputs in fp64 on the CPU.
  std::function<Tensors()> inputs;
  /// Returns results and gradients.
  std::function<Tensors(const Tensors& inputs, Path path)> run;
};

void PrintTo(const RowOperation& one, std::ostream* out) {
  *out << one.name;
}

Tensors run_norm(const Tensors& in, Path path) {
  const AddRmsNormOutput out = add_rms_norm_forward(in[0], {}, in[1], 1e-6, path);
  const RmsNormGrads grads = add_rms_norm_backward(in[2], in[3], in[0], in[1], out.rstd, path);
  return {out.y, out.rstd, grads.x, grads.weight};
}

Tensors run_rope(const Tensors& in, Path path) {
  const at::Tensor& q = in[0];  // [B, T, (H + 2 Hk) D] with H = 6, Hk = 2, D = 64
  QkNormRope setup;
  setup.q_weight = in[1];
  setup.k_weight = in[2];
  setup.tables = rope_tables(512, 64, 1e4, accumulate_type(q), q.device());
  setup.positions = at::arange(q.size(1), at::kLong).expand({q.size(0), -1}).to(q.device());
  const QueryKeyValue out = qkv_norm_rope_forward(q, 6, 2, setup, path);
  const QkvGrads grads = qkv_norm_rope_backward(in[3], in[4], in[4], q, setup, path);
  return {out.q, out.k, grads.qkv, grads.q_weight, grads.k_weight};
}

Tensors run_gated(const Tensors& in, Path path, const char* name) {
  const Activation activation = find_activation(name);
  return {gated_forward(in[0], activation, path), gated_backward(in[1], in[0], activation, path)};
}

bool is_exact(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble;
}

/// Returns x in the dtype of sums: fp64 for fp64, else fp32.
at::Tensor in_sums(const at::Tensor& x) {
  return x.to(accumulate_type(x));
}

/// Returns targets of rows with `classes` classes on the device; every third row has none.
at::Tensor some_targets(const at::Tensor& x, std::int64_t classes) {
  const at::Tensor rows = at::arange(x.size(0), x.options().dtype(at::kLong));
  return (rows * 7919)
      .remainder(classes)
      .masked_fill(rows.remainder(3).eq(1), objective::kIgnoredTarget);
}

constexpr double kGradScale = 0.125;

/// Returns weighted losses and the gradient of the logits in[0] with the row weights in[1].
Tensors run_cross_entropy(const Tensors& in, Path /*path*/) {
  const at::Tensor logits = in[0].clone();
  const at::Tensor targets = some_targets(logits, logits.size(1));
  const at::Tensor weights = in_sums(in[1]).abs();
  if (!is_exact(logits)) {
    const at::Tensor losses = at::empty_like(weights);
    cuda::cross_entropy(logits, targets, weights, losses, {kGradScale}, /*want_grads=*/true);
    return {losses * weights, logits};
  }
  const at::Tensor valid = targets.ge(0);
  const at::Tensor picks = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor log_probs = logits.log_softmax(1);
  const at::Tensor factor = weights * valid;
  const at::Tensor one_hot = at::zeros_like(logits).scatter_(1, picks, 1.0);
  return {log_probs.gather(1, picks).squeeze(1).neg() * factor,
          (log_probs.exp() - one_hot) * (factor * kGradScale).unsqueeze(1)};
}

/// Like run_cross_entropy, for the classes of one rank of a larger vocabulary.
Tensors run_vocab_chunk(const Tensors& in, Path path) {
  comm::SelfCommunicator world;
  const std::int64_t width = in[0].size(1);
  const objective::VocabShard part{world, 5, width + 40};
  const at::Tensor weights = in_sums(in[1]).abs();
  const at::Tensor losses = at::empty_like(weights);
  const at::Tensor grad =
      objective::vocab_chunk({in[0].clone(), some_targets(in[0], part.classes), weights, losses},
                             part, {.grad_scale = kGradScale}, path);
  return {losses, grad};
}

DropoutMask some_mask(const at::Tensor& x) {
  DropoutMask mask;
  mask.p = 0.3;
  mask.key = philox_key(7, "dropout.test");
  mask.step = 11;
  mask.first_feature = 4;
  const auto options = x.options().dtype(at::kLong);
  mask.samples = at::arange(x.size(0), options) * 12345678901;
  mask.positions = at::arange(x.size(1), options).expand({x.size(0), -1}).contiguous();
  return mask;
}

/// Forward and backward are the same call.
Tensors run_dropout(const Tensors& in, Path path) {
  return {dropout_apply(in[0], some_mask(in[0]), path)};
}

/// Adds the gradients in[0] to the table in[1]. Every third token is the same.
Tensors run_embedding(const Tensors& in, Path path) {
  const at::Tensor rows = at::arange(in[0].size(0), in[0].options().dtype(at::kLong));
  const at::Tensor index =
      (rows * rows).remainder(in[1].size(0)).masked_fill(rows.remainder(3).eq(0), 17);
  const at::Tensor table = in_sums(in[1]).clone();
  add_embedding_gradient(table, index, in[0], path);
  return {table};
}

/// Updates weights in[0] with gradients in[1] and averages in[2] and in[3].
Tensors run_adamw(const Tensors& in, Path /*path*/) {
  constexpr double kFactor = 0.25;
  constexpr double kDecay = 0.1;
  const AdamWNumbers numbers{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .update = 3};
  const at::Tensor weights = in_sums(in[0]).clone();
  const at::Tensor grads = in_sums(in[1]).clone();
  const at::Tensor exp_avg = in_sums(in[2]).clone();
  const at::Tensor exp_avg_sq = in_sums(in[3]).square() + 0.01;
  if (!is_exact(in[0])) {
    const at::Tensor copy = at::zeros_like(in[0]);
    const at::Tensor factor = at::full({}, kFactor, weights.options());
    cuda::adamw({{weights, grads, exp_avg, exp_avg_sq, copy, kDecay}}, numbers, factor);
    return {weights, exp_avg, exp_avg_sq, copy};
  }
  const at::Tensor step =
      at::full({}, static_cast<double>(numbers.update), weights.options().dtype(at::kFloat));
  at::_fused_adamw_({weights}, {grads * kFactor}, {exp_avg}, {exp_avg_sq}, {}, {step}, numbers.lr,
                    numbers.beta1, numbers.beta2, kDecay, numbers.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
  return {weights, exp_avg, exp_avg_sq, weights};
}

/// Returns an fp32 tensor on the device of x, like master weights.
at::Tensor master_like(const at::Tensor& x) {
  return at::empty({1}, x.options().dtype(at::kFloat));
}

Tensors some(const std::vector<std::vector<std::int64_t>>& shapes) {
  Tensors all;
  for (const auto& shape : shapes) all.push_back(at::randn(shape, at::kDouble));
  return all;
}

std::vector<RowOperation> operations() {
  std::vector<RowOperation> all{
      {"norm", cuda::accepts_norm,
       [] {
         return some({{4099, 768}, {768}, {4099, 768}, {4099, 768}});
       },
       run_norm},
      {"norm_odd_width", cuda::accepts_norm,
       [] {
         return some({{37, 1021}, {1021}, {37, 1021}, {37, 1021}});
       },
       run_norm},
      {"rope", [](const at::Tensor& x) { return cuda::accepts_rope(x.unsqueeze(-1)); },
       [] {
         return some({{3, 511, 640}, {64}, {64}, {3, 6, 511, 64}, {3, 2, 511, 64}});
       },
       run_rope},
      {"cross_entropy", cuda::accepts_cross_entropy,
       [] {
         return some({{515, 50304}, {515}});
       },
       run_cross_entropy},
      {"cross_entropy_odd_width", cuda::accepts_cross_entropy,
       [] {
         return some({{131, 50257}, {131}});
       },
       run_cross_entropy},
      {"vocab_chunk", cuda::accepts_cross_entropy,
       [] {
         return some({{515, 6288}, {515}});
       },
       run_vocab_chunk},
      {"dropout", cuda::accepts_dropout,
       [] {
         return some({{3, 511, 768}});
       },
       run_dropout},
      {"dropout_odd_width", cuda::accepts_dropout,
       [] {
         return some({{3, 37, 1021}});
       },
       run_dropout},
      {"embedding", [](const at::Tensor& x) { return cuda::accepts_embedding(master_like(x), x); },
       [] {
         return some({{16389, 768}, {1009, 768}});
       },
       run_embedding},
      {"embedding_odd_width",
       [](const at::Tensor& x) { return cuda::accepts_embedding(master_like(x), x); },
       [] {
         return some({{1000, 1021}, {57, 1021}});
       },
       run_embedding},
      {"adamw",
       [](const at::Tensor& x) {
         const at::Tensor master = master_like(x);
         return cuda::accepts_adamw({master, master, master, master, x, 0});
       },
       [] {
         return some({{1048583}, {1048583}, {1048583}, {1048583}});
       },
       run_adamw}};
  for (const ActivationNames& names : Activations::names) {
    all.push_back({names.name.data(), cuda::accepts_gated,
                   [] {
                     return some({{1025, 2 * 1536}, {1025, 1536}});
                   },
                   [name = names.name.data()](const Tensors& in, Path path) {
                     return run_gated(in, path, name);
                   }});
  }
  return all;
}

class GpuKernel : public ::testing::TestWithParam<RowOperation> {};

TEST_P(GpuKernel, EqualsThePlainPath) {
  if (device::num_visible_gpus() == 0) GTEST_SKIP() << "no device";
  at::manual_seed(1);
  const at::Device gpu(at::kCUDA, 0);
  const Tensors inputs = GetParam().inputs();
  for (const auto& [type, bound] :
       {std::pair{at::kFloat, 1e-5}, std::pair{at::kHalf, 1e-3}, std::pair{at::kBFloat16, 8e-3}}) {
    Tensors own;
    Tensors exact;
    for (const at::Tensor& input : inputs) {
      own.push_back(input.to(type).to(gpu));
      exact.push_back(own.back().to(at::kDouble));
    }
    ASSERT_TRUE(GetParam().accepts(own[0])) << at::toString(type) << ": the log has the reason";
    const Tensors results = GetParam().run(own, Path::fast);
    const Tensors again = GetParam().run(own, Path::fast);
    const Tensors expected = GetParam().run(exact, Path::plain);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = (results[i].to(at::kDouble) - expected[i]).abs().max().item<double>();
      const double scale = expected[i].abs().max().item<double>();
      EXPECT_LE(error, bound * scale) << at::toString(type) << ", result " << i;
      EXPECT_TRUE(results[i].equal(again[i])) << at::toString(type) << ", result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, GpuKernel, ::testing::ValuesIn(operations()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(GpuKernelDropout, HasTheBitsOfTheCpu) {
  if (device::num_visible_gpus() == 0) GTEST_SKIP() << "no device";
  at::manual_seed(2);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t width : {768, 1021}) {
      const at::Tensor x = at::randn({3, 511, width}).to(type);
      const at::Tensor on_gpu = x.to(at::Device(at::kCUDA, 0));
      ASSERT_TRUE(cuda::accepts_dropout(on_gpu));
      const at::Tensor y = dropout_apply(on_gpu, some_mask(on_gpu));
      EXPECT_TRUE(y.cpu().equal(dropout_apply(x, some_mask(x)))) << at::toString(type);
    }
  }
}

TEST(GpuKernelGradNorm, HasTheSumOfTheCpu) {
  if (device::num_visible_gpus() == 0) GTEST_SKIP() << "no device";
  at::manual_seed(3);
  const at::Device gpu(at::kCUDA, 0);
  const at::Tensor grads = at::randn({10000019});
  ASSERT_TRUE(cuda::accepts_grad_norm(grads.to(gpu)));
  const at::Tensor expected = at::zeros({cuda::kSumWords}, at::kLong);
  optim::add_block_squares(grads, 37, expected);
  const at::Tensor words = at::zeros({cuda::kSumWords}, at::kLong).to(gpu);
  optim::add_block_squares(grads.to(gpu), 37, words);
  EXPECT_EQ(trireme::testing::carried_words(words.cpu()),
            trireme::testing::carried_words(expected));
  ExactSum sum;
  std::copy_n(expected.const_data_ptr<std::int64_t>(), cuda::kSumWords, sum.words().begin());
  EXPECT_FLOAT_EQ(cuda::clip_factor(words, 1.0, 8.0).item<float>(),
                  static_cast<float>(optim::clip_factor(std::sqrt(sum.value()) / 8, 1.0) / 8));
}

/// Returns true if the codes are equal, up to the sign of NaN and columns of zeros.
bool has_codes(const Fp8Matrix& found, const Fp8Matrix& expected) {
  const std::int64_t columns = expected.codes.size(1);
  const at::Tensor all = found.codes.view(at::kByte).cpu();
  const at::Tensor own = all.narrow(1, 0, columns);
  const at::Tensor both_nan =
      own.contiguous().view(found.codes.scalar_type()).to(at::kFloat).isnan() &
      expected.codes.to(at::kFloat).isnan();
  return (own.eq(expected.codes.view(at::kByte)) | both_nan).all().item<bool>() &&
         all.narrow(1, columns, all.size(1) - columns).eq(0).all().item<bool>() &&
         found.inverse_scale.cpu().equal(expected.inverse_scale);
}

/// Compares codes by rows and by columns, largest values and scales with those of the CPU.
void expect_fp8_of_cpu(const at::Tensor& x, at::ScalarType format, const std::string& label) {
  const at::Tensor on_gpu = x.to(at::Device(at::kCUDA, 0));
  ASSERT_TRUE(cuda::accepts_fp8(on_gpu)) << "the log has the reason";
  const at::Tensor numbers = x.nan_to_num(0, 1, -1);
  const at::Tensor gpu_numbers = numbers.to(on_gpu.device());
  EXPECT_TRUE(amax_of(gpu_numbers).cpu().equal(amax_of(numbers))) << label;
  for (const bool power_of_two : {false, true}) {
    const at::Tensor scale = fp8_scale(amax_of(numbers), format, power_of_two);
    const at::Tensor rows = fp8_scale(row_amax_of(numbers), format, power_of_two);
    const at::Tensor columns = fp8_scale(row_amax_of(numbers.t()), format, power_of_two);
    EXPECT_TRUE(fp8_scale(amax_of(gpu_numbers), format, power_of_two).cpu().equal(scale)) << label;
    EXPECT_TRUE(fp8_scale(row_amax_of(gpu_numbers), format, power_of_two).cpu().equal(rows))
        << label;
    EXPECT_TRUE(fp8_scale(row_amax_of(gpu_numbers.t()), format, power_of_two).cpu().equal(columns))
        << label;
    for (const auto& [of_rows, of_columns] : {std::pair{scale, scale}, std::pair{rows, columns}}) {
      const Fp8Both expected = quantize_fp8_both(x, of_rows, of_columns, format);
      const Fp8Both found = quantize_fp8_both(on_gpu, of_rows.to(on_gpu.device()),
                                              of_columns.to(on_gpu.device()), format);
      EXPECT_TRUE(has_codes(found.by_rows, expected.by_rows)) << label;
      EXPECT_TRUE(has_codes(found.by_columns, expected.by_columns)) << label;
    }
  }
}

TEST(GpuKernelFp8, HasTheBitsOfTheCpu) {
  if (device::num_visible_gpus() == 0) GTEST_SKIP() << "no device";
  at::manual_seed(4);
  for (const at::ScalarType format : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const auto& [rows, width] : {std::pair{4099, 768}, std::pair{37, 1021}}) {
        const at::Tensor x = at::randn({rows, width}) * at::randn({rows, width}).mul(4).exp();
        x[3][5] = std::numeric_limits<float>::infinity();
        x[4][6] = std::numeric_limits<float>::quiet_NaN();
        expect_fp8_of_cpu(x.to(type), format, std::string(at::toString(type)));
      }
    }
    // All 16-bit patterns: every code, tie, subnormal and NaN.
    const at::Tensor bits = at::arange(1 << 16, at::kInt).to(at::kShort).view({256, 256});
    expect_fp8_of_cpu(bits.view(at::kBFloat16), format, "all bf16");
    expect_fp8_of_cpu(bits.view(at::kHalf), format, "all fp16");
  }
}

TEST(GpuKernelProduct, DoesNotRoundWeightGradientsTo16Bits) {
  if (device::num_visible_gpus() == 0) GTEST_SKIP() << "no device";
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const auto options = at::TensorOptions(type).device(at::Device(at::kCUDA, 0));
    const at::Tensor a = at::ones({2, 16}, options);
    const at::Tensor b = at::ones({2, 16}, options);
    b[1].fill_(1.0 / 4096);  // fp16 has 11 bits, bf16 has 8
    const at::Tensor sums = outer_product(a, b);
    EXPECT_EQ(sums.scalar_type(), at::kFloat);
    EXPECT_TRUE(sums.eq(1 + 1.0 / 4096).all().item<bool>()) << at::toString(type);
  }
}

}  // namespace
}  // namespace trireme::ops
