#include "model/weighted.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <vector>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "unit/ops/support.hpp"

namespace trireme::testing {
namespace {

using ops::testing::Case;
using ops::testing::Tensors;

constexpr double kEps = 1e-6;

/// Parameters of these shapes in one registry, each with the values of a tensor.
class Weights {
 public:
  Weights(const Tensors& values, at::ScalarType compute, bool fused = false) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      parallel::ParamSpec spec{formatted("w{}", i), values[i].sizes().vec()};
      spec.fuse_with_previous = fused && i > 0;
      registry.declare(std::move(spec));
    }
    registry.allocate(mesh_, {compute, compute == at::kDouble ? at::kDouble : at::kFloat},
                      at::kCPU);
    set(values);
    registry.begin_update(1);
  }

  void set(const Tensors& values) {
    for (std::size_t i = 0; i < values.size(); ++i) registry.main(i).copy_(values[i]);
    registry.refresh_weights();
  }

  [[nodiscard]] Tensors grads() {
    Tensors all;
    for (std::size_t i = 0; i < registry.size(); ++i) all.push_back(registry.master_grad(i));
    return all;
  }

  parallel::ParamRegistry registry;

 private:
  comm::SelfCommunicator world_;
  parallel::Mesh mesh_{world_, {}};
};

using Operation =
    std::function<Tensors(const Tensors& activations, parallel::ParamRegistry& registry)>;

/// Compares the operation and its gradients, of activations and of registry weights, with ATen's
/// own in fp64 on the same values. `reference` gets activations, then weights.
void expect_same(const Case& c, const Tensors& activations, const Tensors& values,
                 const Operation& operation, const ops::testing::Operation& reference,
                 const std::string& what) {
  const auto label = what + " " + ops::testing::name(c) + " ";
  Tensors own;
  Tensors exact;
  Tensors rounded;
  for (const auto& x : activations) own.push_back(x.to(c.dtype, false, true).requires_grad_());
  for (const auto& w : values) rounded.push_back(w.to(c.dtype));
  for (const auto& x : own) exact.push_back(x.detach().to(at::kDouble, false, true));
  for (const auto& w : rounded) exact.push_back(w.to(at::kDouble, false, true));
  for (auto& x : exact) x.requires_grad_();
  Weights weights(rounded, c.dtype);

  const auto outputs = operation(own, weights.registry);
  const auto expected = reference(exact);
  Tensors incoming;
  Tensors incoming_exact;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ops::testing::expect_close(outputs[i].detach(), expected[i].detach(), c.tolerance,
                               label + "output");
    incoming.push_back(at::randn(outputs[i].sizes(), at::kDouble).to(outputs[i].scalar_type()));
    incoming_exact.push_back(incoming.back().to(at::kDouble));
  }
  Tensors grads = torch::autograd::grad(outputs, own, incoming);
  for (auto& grad : weights.grads()) grads.push_back(grad);
  const auto expected_grads = torch::autograd::grad(expected, exact, incoming_exact);
  ASSERT_EQ(grads.size(), expected_grads.size());
  for (std::size_t i = 0; i < grads.size(); ++i)
    ops::testing::expect_close(grads[i], expected_grads[i], c.tolerance,
                               label + "gradient " + std::to_string(i));
}

at::Tensor random(at::IntArrayRef shape) {
  return ops::testing::random(shape);
}

at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.pow(2).mean(-1, true) + kEps).sqrt() * weight;
}

TEST(Weighted, LinearEqualsAutograd) {
  at::manual_seed(1);
  for (const auto& c : ops::testing::rounding_cases()) {
    expect_same(
        c, {random({2, 5, 7})}, {random({3, 7})},
        [](const Tensors& in, parallel::ParamRegistry& registry) {
          return Tensors{model::weighted::linear(in[0], registry, {0})};
        },
        [](const Tensors& in) { return Tensors{at::linear(in[0], in[1])}; }, "linear");
  }
}

TEST(Weighted, NormsEqualAutograd) {
  at::manual_seed(2);
  for (const auto& c : ops::testing::rounding_cases()) {
    expect_same(
        c, {random({3, 5, 16})}, {random({16})},
        [&](const Tensors& in, parallel::ParamRegistry& registry) {
          return Tensors{
              model::weighted::norm(in[0], registry, {0}, {.eps = kEps, .path = c.path})};
        },
        [](const Tensors& in) { return Tensors{reference_norm(in[0], in[1])}; }, "rms_norm");
    if (c.dtype == at::kBFloat16) continue;  // the sum is rounded before the norm
    expect_same(
        c, {random({3, 5, 16}), random({3, 5, 16})}, {random({16})},
        [&](const Tensors& in, parallel::ParamRegistry& registry) {
          const auto out =
              model::weighted::add_norm(in[0], in[1], registry, {0}, {.eps = kEps, .path = c.path});
          return Tensors{out.sum, out.y};
        },
        [](const Tensors& in) {
          const auto sum = in[0] + in[1];
          return Tensors{sum, reference_norm(sum, in[2])};
        },
        "add_rms_norm");
  }
}

/// Returns the setup of two query heads, one key head, D = 4.
ops::QkNormRope rope(at::ScalarType dtype) {
  const auto tables = ops::rope_tables(8, 4, 1e4, dtype == at::kDouble ? at::kDouble : at::kFloat);
  return {{}, {}, kEps, tables, at::arange(3).expand({2, 3}).contiguous()};
}

at::Tensor turned(const at::Tensor& x, const ops::QkNormRope& setup) {
  const auto cos = setup.tables.cos.index({setup.positions}).unsqueeze(2);  // [B, T, 1, D / 2]
  const auto sin = setup.tables.sin.index({setup.positions}).unsqueeze(2);
  const auto a = x.narrow(-1, 0, 2);
  const auto b = x.narrow(-1, 2, 2);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).transpose(1, 2);
}

TEST(Weighted, QueriesAndKeysEqualAutogradWithAndWithoutNorms) {
  at::manual_seed(3);
  for (const auto& c : ops::testing::rounding_cases()) {
    const auto setup = rope(c.dtype);
    for (const bool normed : {true, false}) {
      expect_same(
          c, {random({2, 3, 16})}, normed ? Tensors{random({4}), random({4})} : Tensors{},
          [&](const Tensors& in, parallel::ParamRegistry& registry) {
            model::weighted::QkNormWeights norms;
            if (normed) norms = {parallel::WeightRef{0}, parallel::WeightRef{1}};
            const auto out =
                model::weighted::qkv_norm_rope(in[0], 2, 1, registry, norms, setup, c.path);
            return Tensors{out.q, out.k, out.v};
          },
          [&](const Tensors& in) {
            const auto heads = in[0].view({2, 3, 4, 4});
            auto q = heads.narrow(2, 0, 2);
            auto k = heads.narrow(2, 2, 1);
            if (normed) q = reference_norm(q, in[1]);
            if (normed) k = reference_norm(k, in[2]);
            const auto exact = rope(at::kDouble);
            return Tensors{turned(q, exact), turned(k, exact),
                           heads.narrow(2, 3, 1).transpose(1, 2)};
          },
          "qkv_norm_rope");
    }
  }
}

TEST(Weighted, FusedParametersAreOneMatrix) {
  at::manual_seed(4);
  const Tensors values{random({2, 3}), random({4, 3})};
  Weights weights(values, at::kDouble, /*fused=*/true);
  const auto x = random({5, 3}).requires_grad_();
  const auto grad = random({5, 6});

  const auto y = model::weighted::linear(x, weights.registry, {0, 2});
  const auto grad_x = torch::autograd::grad({y}, {x}, {grad})[0];

  EXPECT_TRUE(y.allclose(x.matmul(at::cat(values).t())));
  EXPECT_TRUE(grad_x.allclose(grad.matmul(at::cat(values))));
  EXPECT_TRUE(at::cat(weights.grads()).allclose(grad.t().matmul(x)));
}

TEST(Weighted, AsksForTheWeightAgainInBackward) {
  at::manual_seed(5);
  Weights weights({random({4, 3}), random({3})}, at::kDouble);
  const Tensors later{random({4, 3}), random({3})};
  const auto x = random({5, 3}).requires_grad_();
  const auto grad = random({5, 4});
  const auto normed =
      model::weighted::norm(x, weights.registry, {1}, {.eps = kEps, .path = ops::Path::plain});
  const auto y = model::weighted::linear(normed, weights.registry, {0});

  weights.set(later);  // simulates a gather buffer that another weight uses in between
  const auto grad_x = torch::autograd::grad({y}, {x}, {grad})[0];

  const auto again = x.detach().requires_grad_();
  const auto expected = at::linear(reference_norm(again, later[1]), later[0]);
  EXPECT_TRUE(grad_x.allclose(torch::autograd::grad({expected}, {again}, {grad})[0]));
}

TEST(Weighted, GradientsLeaveOneByOneInTheOrderOfBackward) {
  Weights weights({random({3, 3}), random({3}), random({3, 3})}, at::kDouble);
  std::vector<parallel::ParamId> ready;
  weights.registry.on_ready([&](parallel::ParamId id) { ready.push_back(id); });
  const auto x = random({5, 3}).requires_grad_();

  const auto first = model::weighted::linear(x, weights.registry, {0});
  const auto normed =
      model::weighted::norm(first, weights.registry, {1}, {.eps = kEps, .path = ops::Path::plain});
  model::weighted::linear(normed, weights.registry, {2}).sum().backward();

  EXPECT_EQ(ready, (std::vector<parallel::ParamId>{2, 1, 0}));
}

/// Returns a rank's result, input gradient and weight gradient of two linears with a shard between
/// them.
Tensors enter_and_leave(comm::Communicator& world, bool sequence_parallel, std::int64_t chunks,
                        std::int64_t rows, at::ScalarType dtype) {
  const parallel::TensorGroup group(world, sequence_parallel, chunks);
  const auto random_on = [&](std::uint64_t seed, at::IntArrayRef shape) {
    return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble);
  };
  const auto rank = static_cast<std::uint64_t>(world.rank());
  const std::int64_t tokens = sequence_parallel ? 7 : 14;  // tokens of a row on this rank
  const std::uint64_t whose = sequence_parallel ? rank : 0;
  Weights weights({random_on(10 + rank, {5, 6}), random_on(20 + rank, {4, 5})}, dtype);
  const auto x = random_on(30 + whose, {rows, tokens, 6}).to(dtype).requires_grad_();
  const auto grad = random_on(40 + whose, {rows, tokens, 4}).to(dtype);

  const auto inside = model::weighted::column_parallel_linear(group, x, weights.registry, {0});
  const auto y = model::weighted::row_parallel_linear(group, inside.tanh(), weights.registry, {1});
  Tensors results{y.detach(), torch::autograd::grad({y}, {x}, {grad})[0]};
  for (const at::Tensor& one : weights.grads()) results.push_back(one);
  return results;
}

std::uint64_t calls_of(const comm::Communicator& world) {
  std::uint64_t calls = 0;
  for (const comm::TrafficRow& row : world.traffic()) calls += row.count;
  return calls;
}

TEST(Weighted, TokensThatEnterAndLeaveInChunksGiveTheSame) {
  comm::run_ranks(2, [&](comm::Communicator& world) {
    for (const bool sequence_parallel : {false, true}) {
      for (const std::int64_t rows : {1, 3}) {
        for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
          const auto run = [&](std::int64_t chunks) {
            const std::uint64_t before = calls_of(world);
            Tensors results = enter_and_leave(world, sequence_parallel, chunks, rows, dtype);
            return std::pair{results, calls_of(world) - before};
          };
          const auto [expected, calls] = run(1);
          EXPECT_EQ(calls, sequence_parallel ? 4U : 2U);
          for (const std::int64_t chunks : {2, 3, 7}) {  // each row has 7 tokens
            const auto [results, more_calls] = run(chunks);
            EXPECT_EQ(more_calls, calls * static_cast<std::uint64_t>(chunks));
            const double bound = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 1e-5 : 2e-2;
            for (std::size_t i = 0; i < results.size(); ++i) {
              const double distance = (results[i] - expected[i]).abs().max().item<double>();
              EXPECT_LE(distance, bound * expected[i].abs().max().item<double>())
                  << "result " << i << ", chunks " << chunks << ", rows " << rows << ", sequence "
                  << sequence_parallel << ", " << dtype;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::testing
