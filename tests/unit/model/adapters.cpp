/// Tests low-rank adapters on frozen weights, and models that are frozen completely.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <vector>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "device/memory_count.hpp"
#include "model/transformer.hpp"
#include "unit/ops/support.hpp"

namespace trireme::testing {
namespace {

using model::weighted::Adapters;
using model::weighted::AdaptersUse;
using ops::testing::Case;
using ops::testing::Tensors;

constexpr std::int64_t kIn = 7;
constexpr std::int64_t kRank = 3;
constexpr double kScale = 0.75;
constexpr std::array<std::int64_t, 3> kRows{6, 2, 2};  // q, k, v

/// q, k and v as one matrix, frozen or not, with adapters on q and v.
struct Fused {
  Fused(at::ScalarType dtype, bool frozen) {
    parallel::ParamId id = 0;
    for (const std::int64_t rows : kRows) {
      parallel::ParamSpec spec{formatted("w{}", rows + static_cast<std::int64_t>(10 * id)),
                               {rows, kIn}};
      spec.fuse_with_previous = id > 0;
      spec.frozen = frozen;
      id = registry.declare(std::move(spec)) + 1;
    }
    adapters.a = {registry.declare({"a0", {kRank, kIn}}), 2};
    registry.declare({.name = "a1", .shape = {kRank, kIn}, .fuse_with_previous = true});
    adapters.terms.push_back({{registry.declare({"b0", {kRows[0], kRank}})}, 0});
    adapters.terms.push_back({{registry.declare({"b1", {kRows[2], kRank}})}, kRows[0] + kRows[1]});
    adapters.rank = kRank;
    adapters.scale = kScale;
    registry.allocate(mesh, {dtype, dtype == at::kDouble ? at::kDouble : at::kFloat}, at::kCPU);
    for (parallel::ParamId one = 0; one < registry.size(); ++one)
      registry.main(one).copy_(at::randn(registry.spec(one).shape, at::kDouble));
    registry.refresh_weights();
    registry.begin_update(1);
  }

  [[nodiscard]] Tensors values() {
    Tensors all;
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      all.push_back(registry.weight(id).to(at::kDouble, false, true).requires_grad_());
    return all;
  }

  comm::SelfCommunicator world;
  parallel::Mesh mesh{world, {}};
  parallel::ParamRegistry registry;
  Adapters adapters;
};

/// Computes the adapters by their definition; `values` in the order of declaration.
at::Tensor reference(const at::Tensor& x, const at::Tensor& dropped, const Tensors& values) {
  const auto term = [&](std::size_t a, std::size_t b) {
    return dropped.matmul(values[a].t()).matmul(values[b].t()).mul(kScale);
  };
  const at::Tensor none = at::zeros({x.size(0), x.size(1), kRows[1]}, at::kDouble);
  return x.matmul(at::cat({values[0], values[1], values[2]}).t()) +
         at::cat({term(3, 5), none, term(4, 6)}, -1);
}

ops::DropoutMask some_dropout() {
  return {.p = 0.4,
          .key = 77,
          .step = 3,
          .layer = 1,
          .op = 2,
          .samples = at::arange(2, at::kLong),
          .positions = at::arange(5, at::kLong).expand({2, 5})};
}

TEST(Adapters, BesideFusedWeightsEqualAutograd) {
  at::manual_seed(1);
  for (const Case& c : ops::testing::rounding_cases()) {
    for (const bool frozen : {true, false}) {
      for (const bool drops : {false, true}) {
        for (const bool makes_again : {false, true}) {
          const std::string what =
              formatted("{}, frozen {}, dropout {}, again {}: ", ops::testing::name(c), frozen,
                        drops, makes_again);
          Fused fused(c.dtype, frozen);
          AdaptersUse use{&fused.adapters, {}, c.path};
          if (drops) use.dropout = some_dropout();
          const at::Tensor x = at::randn({2, 5, kIn}, at::kDouble).to(c.dtype).requires_grad_();
          const at::Tensor exact = x.detach().to(at::kDouble, false, true).requires_grad_();
          model::RecomputeFn again;
          if (makes_again) again = [kept = x.detach()] { return kept; };

          const at::Tensor y = model::weighted::linear(x, fused.registry, {0, 3}, again, use);
          const at::Tensor incoming = at::randn(y.sizes(), at::kDouble).to(c.dtype);
          const at::Tensor grad_x = torch::autograd::grad({y}, {x}, {incoming})[0];

          Tensors inputs = fused.values();
          const at::Tensor dropped =
              drops ? ops::dropout_philox(exact, some_dropout(), ops::Path::plain) : exact;
          const at::Tensor expected = reference(exact, dropped, inputs);
          inputs.insert(inputs.begin(), exact);
          const Tensors grads =
              torch::autograd::grad({expected}, inputs, {incoming.to(at::kDouble)});
          const double bound = 2 * c.tolerance;  // two products, one after the other
          ops::testing::expect_close(y.detach(), expected.detach(), bound, what + "output");
          ops::testing::expect_close(grad_x, grads[0], bound, what + "gradient of x");
          for (parallel::ParamId id = frozen ? 3 : 0; id < fused.registry.size(); ++id) {
            ops::testing::expect_close(fused.registry.master_grad(id), grads[id + 1], bound,
                                       what + fused.registry.spec(id).name);
          }
        }
      }
    }
  }
}

TEST(Adapters, AFrozenLinearKeepsNoInput) {
  Fused fused(at::kFloat, /*frozen=*/true);
  at::Tensor x = at::randn({2, 5, kIn}).requires_grad_();
  const device::MemoryCount count;
  at::Tensor between = x * 2;
  at::Tensor y = model::weighted::linear(between, fused.registry, {0, 3});
  between.reset();
  EXPECT_EQ(count.live_bytes(), static_cast<std::int64_t>(y.nbytes()));
  const at::Tensor grad = torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0];
  EXPECT_TRUE(grad.allclose(
      2 * at::ones({2, 5, 10}).matmul(fused.registry.weight(parallel::WeightRef{0, 3}))));
}

// ---- whole models

model::ModelConfig small_model() {
  model::ModelConfig config = model::model_preset("tiny");
  config.num_layers = 2;
  config.max_seq_len = 12;
  model::resolve(config, 40);
  return config;
}

parallel::Microbatch some_rows() {
  parallel::Microbatch batch;
  batch.tokens = at::randint(40, {2, 12}, at::kLong);
  batch.dropout_positions = at::arange(12, at::kLong).expand({2, 12}).contiguous();
  batch.positions = batch.dropout_positions;
  batch.samples = at::arange(2, at::kLong);
  return batch;
}

struct Model {
  explicit Model(const model::LoraConfig& lora, bool frozen = false,
                 device::ParamDTypes dtypes = {})
      : config(small_model()) {
    if (frozen) registry.freeze();
    model::TransformerOptions options;
    options.lora = lora;
    transformer.emplace(registry, config, options);
    registry.allocate(mesh, dtypes, at::kCPU);
    transformer->prepare();
    registry.initialize(5);
  }

  void fill_b(double scale) {
    at::manual_seed(9);
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      if (registry.spec(id).name.ends_with("lora_B.weight"))
        registry.main(id).copy_(at::randn(registry.spec(id).shape).mul_(scale));
    registry.refresh_weights();
  }

  model::ModelConfig config;
  comm::SelfCommunicator world;
  parallel::Mesh mesh{world, {}};
  parallel::ParamRegistry registry;
  std::optional<model::Transformer> transformer;
};

model::LoraConfig rank_2() {
  model::LoraConfig lora;
  lora.rank = 2;
  return lora;
}

TEST(Adapters, BeginAsTheBaseAndCanBeLeftOut) {
  Model base({});
  Model adapted(rank_2());
  at::manual_seed(2);
  parallel::Microbatch batch = some_rows();
  const at::Tensor expected = base.transformer->hidden(batch);
  EXPECT_TRUE(adapted.transformer->hidden(batch).equal(expected)) << "B is zero";

  adapted.fill_b(0.3);

  EXPECT_FALSE(adapted.transformer->hidden(batch).allclose(expected, 1e-2, 1e-2));
  batch.adapters = false;
  EXPECT_TRUE(adapted.transformer->hidden(batch).equal(expected));
}

TEST(Adapters, HaveTheNamesAndFirstValuesOfPeft) {
  model::LoraConfig lora = rank_2();
  lora.rank = 16;
  Model model(lora);
  std::size_t found = 0;
  for (parallel::ParamId id = 0; id < model.registry.size(); ++id) {
    const parallel::ParamSpec& spec = model.registry.spec(id);
    const bool adapter = spec.name.find(".lora_") != std::string::npos;
    EXPECT_EQ(model.registry.trained({id}), adapter) << spec.name;
    found += adapter ? 1 : 0;
    if (spec.name == "model.layers.1.mlp.down_proj.lora_A.weight") {
      const double bound = 1 / std::sqrt(static_cast<double>(model.config.intermediate_size));
      const at::Tensor values = model.registry.main(id);
      EXPECT_EQ(spec.shape, (std::vector<std::int64_t>{16, model.config.intermediate_size}));
      EXPECT_LE(values.abs().max().item<double>(), bound);
      EXPECT_GT(values.abs().max().item<double>(), 0.99 * bound);
      EXPECT_NEAR(values.square().mean().item<double>(), bound * bound / 3, 0.05 * bound * bound);
    } else if (spec.name == "model.layers.0.self_attn.q_proj.lora_B.weight") {
      EXPECT_EQ(spec.shape, (std::vector<std::int64_t>{128, 16}));
      EXPECT_EQ(model.registry.main(id).abs().max().item<double>(), 0);
    }
  }
  EXPECT_EQ(found, 2U * 2U * 7U);
  EXPECT_EQ(model::num_lora_parameters(lora, model.config),
            2 * 16 * (128 * 2 + (128 + 64) * 2 + 128 * 2 + (128 + 448) * 3));
}

TEST(Adapters, OnlyTheyHaveGradientsAndState) {
  Model model(rank_2(), false, {at::kBFloat16, at::kFloat});
  const std::int64_t trained = model::num_lora_parameters(rank_2(), model.config);
  const parallel::UnitLayout& layout = model.registry.layout();

  EXPECT_LE(trained, layout.trainable_count());
  EXPECT_LT(layout.trainable_count(), trained + 2 * 12 * 64) << "each begins at a cache line";
  EXPECT_EQ(model.registry.grads().held_bytes(), 4 * layout.trainable_count());
  EXPECT_EQ(model.registry.main_bytes(), 4 * layout.trainable_count());
  EXPECT_EQ(model.registry.make_state().numel(), layout.trainable_count());
  EXPECT_EQ(model.registry.weights().held_bytes(), 2 * layout.count());
}

TEST(Adapters, TheBaseMayRunBetweenForwardAndBackward) {
  for (const std::int64_t zero : {0, 3}) {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      parallel::ParallelConfig parallel;
      parallel.zero = zero;
      const parallel::Mesh mesh(world, parallel);
      const auto grads_with = [&](bool reference) {
        parallel::ParamRegistry registry;
        model::TransformerOptions options;
        options.lora = rank_2();
        model::Transformer model(registry, small_model(), options);
        registry.allocate(mesh, {}, at::kCPU);
        model.prepare();
        registry.initialize(5);
        parallel::Microbatch batch;
        batch.tokens = at::arange(24, at::kLong).view({2, 12});
        batch.dropout_positions = at::arange(12, at::kLong).expand({2, 12}).contiguous();
        batch.positions = batch.dropout_positions;
        batch.samples = at::arange(2, at::kLong);
        registry.begin_update(1);
        model.begin_update({{0, true}, {0, false}});
        model::StageActivations saved;
        const at::Tensor hidden = model.forward(0, batch, {}, saved);
        parallel::Microbatch of_base = batch;
        of_base.adapters = false;
        if (reference) {
          EXPECT_TRUE(model.hidden(of_base).equal(hidden));
        }
        model.backward_final_norm(saved, at::ones_like(hidden));
        model.backward(0, batch, saved, {});
        std::vector<at::Tensor> grads;
        for (const std::size_t unit : registry.layout().trainable_units())
          grads.push_back(registry.grads().whole(unit));
        return grads;
      };
      const std::vector<at::Tensor> expected = grads_with(false);
      const std::vector<at::Tensor> grads = grads_with(true);
      ASSERT_EQ(grads.size(), 2U);
      for (std::size_t i = 0; i < grads.size(); ++i) {
        EXPECT_GT(grads[i].abs().max().item<double>(), 0);
        EXPECT_TRUE(grads[i].equal(expected[i])) << "zero " << zero;
      }
    });
  }
}

TEST(FrozenModel, TakesTwoBytesAParameterInBf16) {
  comm::SelfCommunicator world;
  const parallel::Mesh mesh(world, {});
  const model::ModelConfig config = small_model();
  parallel::ParamRegistry registry;
  registry.freeze();
  model::Transformer model(registry, config, {});
  const device::MemoryCount count;

  registry.allocate(mesh, {at::kBFloat16, at::kFloat}, at::kCPU);
  registry.initialize(5);

  const std::int64_t padding = 64 * static_cast<std::int64_t>(registry.size() + 4);
  EXPECT_GE(count.live_bytes(), 2 * config.num_parameters());
  EXPECT_LE(count.live_bytes(), 2 * (config.num_parameters() + padding));
}

TEST(FrozenModel, ComputesWhatATrainedOneDoes) {
  const device::ParamDTypes bf16{at::kBFloat16, at::kFloat};
  Model trained({}, /*frozen=*/false, bf16);
  Model frozen({}, /*frozen=*/true, bf16);
  at::manual_seed(3);
  const parallel::Microbatch batch = some_rows();
  EXPECT_TRUE(frozen.transformer->hidden(batch).equal(trained.transformer->hidden(batch)));
}

}  // namespace
}  // namespace trireme::testing
