#include "ops/fp8.hpp"

#include <gtest/gtest.h>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "model/fp8_scaling.hpp"

namespace trireme::model {
namespace {

constexpr Fp8Mode kModes[] = {Fp8Mode::tensorwise, Fp8Mode::rowwise, Fp8Mode::delayed};

ModelConfig shape() {
  ModelConfig config = model_preset("tiny");
  config.hidden_size = 128;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 1;
  config.head_dim = 32;
  config.intermediate_size = 96;
  resolve(config, 40);
  return config;
}

/// Returns x rounded to fp8 and back, in fp64: the whole matrix or its rows by one scale each.
at::Tensor rounded(const at::Tensor& x, at::ScalarType format, bool by_row) {
  const at::Tensor amax = by_row ? std::get<0>(x.abs().max(1, true)) : x.abs().max();
  at::Tensor scale = ((format == at::kFloat8_e4m3fn ? 448 : 57344) / amax.to(at::kDouble));
  if (by_row) scale = scale.log2().floor().exp2();
  const at::Tensor codes = (x.to(at::kFloat) * scale.to(at::kFloat)).to(format);
  return codes.to(at::kDouble) / scale;
}

struct Products {
  at::Tensor y;
  at::Tensor grad_x;
  at::Tensor grad_w;
};

Products products_of(Fp8Scaling& scaling, const parallel::TensorGroup& group, bool row_parallel,
                     const at::Tensor& x, const at::Tensor& w, const at::Tensor& grad_y) {
  Fp8Call call(scaling, 1, group, row_parallel);
  const at::Tensor y = call.output(x, w);
  const at::Tensor grad_x = call.input_grad(grad_y, w);
  return {y, grad_x, call.weight_grad(x, grad_y)};
}

struct Operands {
  at::Tensor x;
  at::Tensor w;
  at::Tensor grad_y;
};

Operands operands() {
  at::manual_seed(9);
  return {at::randn({2, 9, 64}), at::randn({48, 64}) * 0.02, at::randn({2, 9, 48}) * 1e-6};
}

double apart(const at::Tensor& values, const at::Tensor& expected) {
  return ((values.to(at::kDouble) - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST(Fp8Linear, LargeMatricesOfABlockAreInFp8) {
  const ModelConfig small = shape();  // 96 columns of down are too few
  EXPECT_EQ(fp8_linears(small), (std::array{true, true, true, false}));
  ModelConfig odd = small;
  odd.num_kv_heads = 4;
  odd.num_heads = 4;
  odd.head_dim = 34;  // 136 columns of o, 408 rows of qkv
  odd.intermediate_size = 136;
  EXPECT_EQ(fp8_linears(odd), (std::array{false, false, true, false}));
}

TEST(Fp8Linear, ForwardAndBackwardAreTheFormula) {
  const auto [x, w, grad_y] = operands();
  const at::Tensor rows = x.view({-1, 64});
  const at::Tensor grads = grad_y.view({-1, 48});
  for (const Fp8Mode mode : kModes) {
    const bool by_row = mode == Fp8Mode::rowwise;
    const at::ScalarType of_grads = by_row ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
    const auto e4m3 = [&](const at::Tensor& m) { return rounded(m, at::kFloat8_e4m3fn, by_row); };
    const auto of_grad = [&](const at::Tensor& m) { return rounded(m, of_grads, by_row); };
    Fp8Scaling scaling(mode, shape());
    scaling.prepare(at::kCPU);
    const Products found = products_of(scaling, {}, false, x, w, grad_y);
    constexpr double kBound = 2e-6;  // fp32 sums of at most 64 terms
    EXPECT_LE(apart(found.y.view({-1, 48}), e4m3(rows).mm(e4m3(w).t())), kBound);
    EXPECT_LE(apart(found.grad_x.view({-1, 64}), of_grad(grads).mm(e4m3(w.t()).t())), kBound);
    EXPECT_LE(apart(found.grad_w, of_grad(grads.t()).mm(e4m3(rows.t()).t())), kBound);
    EXPECT_EQ(found.y.sizes(), (std::vector<std::int64_t>{2, 9, 48}));
  }
}

TEST(Fp8Linear, KeptCodesGiveTheSameBits) {
  const auto [x, w, grad_y] = operands();
  for (const Fp8Mode mode : kModes) {
    Fp8Scaling scaling(mode, shape());
    scaling.prepare(at::kCPU);
    const Products expected = products_of(scaling, {}, false, x, w, grad_y);
    const parallel::TensorGroup alone;
    Fp8Call call(scaling, 1, alone, false);
    EXPECT_TRUE(call.output(x, w, /*keeps_codes=*/true).equal(expected.y));
    EXPECT_TRUE(call.input_grad(grad_y, w, /*keeps_codes=*/true).equal(expected.grad_x));
    EXPECT_TRUE(call.weight_grad({}, {}).equal(expected.grad_w));
    EXPECT_TRUE(call.weight_grad(x, grad_y).equal(expected.grad_w)) << "the codes are free";
  }
}

/// Returns the products of two ranks of tp, put together.
Products split_products(Fp8Mode mode, bool row_parallel) {
  const auto [x, w, grad_y] = operands();
  std::array<Products, 2> parts;
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const parallel::TensorGroup group(world, false);
    Fp8Scaling scaling(mode, shape());
    scaling.prepare(at::kCPU);
    const auto part = [&](const at::Tensor& all, std::int64_t dim) {
      const std::int64_t size = all.size(dim) / 2;
      return all.narrow(dim, world.rank() * size, size).contiguous();
    };
    parts.at(static_cast<std::size_t>(world.rank())) =
        row_parallel ? products_of(scaling, group, true, part(x, 2), part(w, 1), grad_y)
                     : products_of(scaling, group, false, x, part(w, 0), part(grad_y, 2));
  });
  const auto& [one, two] = parts;
  return row_parallel ? Products{one.y + two.y, at::cat({one.grad_x, two.grad_x}, 2),
                                 at::cat({one.grad_w, two.grad_w}, 1)}
                      : Products{at::cat({one.y, two.y}, 2), one.grad_x + two.grad_x,
                                 at::cat({one.grad_w, two.grad_w}, 0)};
}

TEST(Fp8Linear, TwoTensorRanksRoundTheOperandsLikeOne) {
  const auto [x, w, grad_y] = operands();
  for (const Fp8Mode mode : kModes) {
    Fp8Scaling scaling(mode, shape());
    scaling.prepare(at::kCPU);
    const Products whole = products_of(scaling, {}, false, x, w, grad_y);
    for (const bool row_parallel : {false, true}) {
      const Products split = split_products(mode, row_parallel);
      constexpr double kBound = 1e-6;  // fp32 sums in another order; one other code is 1e-3
      EXPECT_LE(apart(split.y, whole.y.to(at::kDouble)), kBound);
      EXPECT_LE(apart(split.grad_x, whole.grad_x.to(at::kDouble)), kBound);
      EXPECT_LE(apart(split.grad_w, whole.grad_w.to(at::kDouble)), kBound);
    }
  }
}

TEST(Fp8Scaling, DelayedScalesComeFromTheLargestValuesOfTheLastUpdates) {
  comm::SelfCommunicator world;
  Fp8Scaling scaling(Fp8Mode::delayed, shape());
  scaling.prepare(at::kCPU);
  const auto scale_at = [&](double value) {
    const std::array<at::Tensor, 1> x{at::full({4, 4}, value, at::kFloat)};
    return scaling.scales(5, Fp8Operand::input, x, {})[0].item<double>();
  };
  EXPECT_EQ(scale_at(7), 64);  // no history yet: the tensor's own scale
  EXPECT_EQ(scaling.history(), std::nullopt);
  scaling.end_update(world, true);

  EXPECT_EQ(scale_at(28), 64);
  scaling.end_update(world, false);  // a skipped update leaves no trace
  scaling.begin_update();
  EXPECT_EQ(scale_at(14), 64);
  scaling.begin_update();  // a cancelled update neither
  EXPECT_EQ(scale_at(3.5), 64);
  scaling.end_update(world, true);
  scaling.begin_update();
  for (std::int64_t update = 2; update < Fp8Scaling::kHistory; ++update) {
    EXPECT_EQ(scale_at(1.75), 64) << update;
    scaling.end_update(world, true);
    scaling.begin_update();
  }
  EXPECT_EQ(scale_at(1.75), 64);
  scaling.end_update(world, true);
  EXPECT_EQ(scale_at(1.75), 128) << "the first update has left the history";
}

TEST(Fp8Scaling, NonFiniteValuesStayVisibleAndOutOfTheHistory) {
  comm::SelfCommunicator world;
  Fp8Scaling scaling(Fp8Mode::delayed, shape());
  scaling.prepare(at::kCPU);
  const auto scale_at = [&](const at::Tensor& x) {
    const std::array<at::Tensor, 1> each{x};
    return scaling.scales(0, Fp8Operand::weight, each, {})[0].item<double>();
  };
  (void)scale_at(at::full({2, 2}, 7.0, at::kFloat));
  scaling.end_update(world, true);
  scaling.begin_update();
  EXPECT_TRUE(std::isnan(scale_at(at::full({2, 2}, INFINITY, at::kFloat))));
  scaling.end_update(world, true);
  EXPECT_EQ(scale_at(at::ones({2, 2})), 64);
}

TEST(Fp8Scaling, AHistorySurvivesACheckpoint) {
  comm::SelfCommunicator world;
  Fp8Scaling scaling(Fp8Mode::delayed, shape());
  scaling.prepare(at::kCPU);
  const auto scale_of = [](Fp8Scaling& of) {
    const std::array<at::Tensor, 1> x{at::full({2, 2}, 1.0 / 3, at::kFloat)};
    return of.scales(2, Fp8Operand::output_grad, x, {})[0].item<double>();
  };
  for (int update = 0; update < 3; ++update) {
    (void)scale_of(scaling);
    scaling.end_update(world, true);
  }
  const std::string text = scaling.history().value();
  EXPECT_EQ(text.size(), 3U * 2 * 4 * 3 * 8);  // updates, layers, matrices, operands, digits

  Fp8Scaling restored(Fp8Mode::delayed, shape());
  restored.prepare(at::kCPU);
  restored.restore(text);
  EXPECT_EQ(restored.history(), text);
  EXPECT_EQ(scale_of(restored), scale_of(scaling));
  for (const std::string& wrong : {text + "0", std::string(), std::string(text.size(), 'x')}) {
    EXPECT_THROW(restored.restore(wrong), Error);
  }
}

}  // namespace
}  // namespace trireme::model
