#include "ops/adamw.hpp"

#include "comm/self/self_communicator.hpp"
#include "ops/operations.hpp"
#include "optim/optimizer.hpp"
#include "unit/ops/adamw_pieces.hpp"
#include "unit/ops/thread_count.hpp"

namespace trireme::ops::testing {
namespace {

at::Tensor scalar(double value) {
  return at::scalar_tensor(value, at::kFloat);
}

TEST(AdamW, EqualsAtenInFp64ForOddSizes) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<AdamWTensors> pieces;
    std::vector<std::array<at::Tensor, 3>> expected;
    std::vector<at::Tensor> grads;
    for (const std::int64_t count : {0, 1, 15, 16, 4099}) {
      for (const std::int64_t offset : {0, 1}) {
        pieces.push_back(some_piece(count, offset, count % 2 == 0 ? 0.1 : 0.0, type));
        ASSERT_TRUE(accepts_adamw(pieces.back()));
        expected.push_back(expected_update(pieces.back(), 0.25));
        grads.push_back(pieces.back().grads.clone());
      }
    }
    adamw(pieces, kNumbers, scalar(0.25));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::string at = formatted("{} {} ", at::toString(type), pieces[i].weights.numel());
      expect_close(pieces[i].weights, expected[i][0], 1e-6, at + "weights");
      expect_close(pieces[i].exp_avg, expected[i][1], 1e-6, at + "exp_avg");
      expect_close(pieces[i].exp_avg_sq, expected[i][2], 1e-6, at + "exp_avg_sq");
      EXPECT_TRUE(pieces[i].grads.equal(grads[i])) << at;
      if (!pieces[i].copy.defined()) continue;
      EXPECT_TRUE(pieces[i].copy.equal(pieces[i].weights.to(type))) << at << "copy";
    }
  }
}

TEST(AdamW, HasTheSameBitsForAnyThreadsAndDivision) {
  constexpr std::int64_t kCount = 100'003;
  constexpr std::int64_t kFirst = 33;  // the elements before it are a piece of their own
  std::vector<at::Tensor> results;
  for (const int count : {1, 3}) {
    for (const bool divided : {false, true}) {
      at::manual_seed(2);
      const Threads threads(count);
      const AdamWTensors whole = some_piece(kCount, 0, 0.1, at::kBFloat16);
      const auto part = [&](std::int64_t first, std::int64_t last) {
        const auto of = [&](const at::Tensor& x) { return x.narrow(0, first, last - first); };
        return AdamWTensors{of(whole.weights),    of(whole.grads), of(whole.exp_avg),
                            of(whole.exp_avg_sq), of(whole.copy),  whole.decay};
      };
      adamw(divided ? std::vector{part(0, kFirst), part(kFirst, kCount)} : std::vector{whole},
            kNumbers, scalar(0.5));
      results.push_back(at::cat({whole.weights, whole.exp_avg, whole.exp_avg_sq, whole.copy}));
    }
  }
  for (const at::Tensor& other : results) EXPECT_TRUE(other.equal(results.front()));
}

TEST(AdamW, ChangesNothingIfTheFactorIsNotFinite) {
  at::manual_seed(3);
  for (const double factor :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const AdamWTensors piece = some_piece(70, 0, 0.1, at::kBFloat16);
    const at::Tensor weights = piece.weights.clone();
    adamw({piece}, kNumbers, scalar(factor));
    EXPECT_TRUE(piece.weights.equal(weights));
    EXPECT_TRUE(piece.copy.eq(0).all().item<bool>());
  }
}

TEST(AdamW, TheOptimizerHasOnePassUnlessItIsPlain) {
  comm::SelfCommunicator world;
  const parallel::Mesh mesh(world, {});
  parallel::ParamRegistry registry;
  registry.begin_unit("a");
  registry.declare({.name = "matrix", .shape = {5, 13}});
  registry.allocate(mesh, {at::kBFloat16, at::kFloat}, at::kCPU);
  const auto optimizer = optim::make_optimizer(optim::optimizer_defaults("adamw"), registry);
  EXPECT_TRUE(optimizer->has_one_pass());
  constexpr std::array kPlain{ops::Operation::optimizer};
  compute_plainly(kPlain);
  EXPECT_FALSE(optimizer->has_one_pass());
  compute_plainly({});
}

TEST(AdamW, RefusesDtypesWithoutKernel) {
  const AdamWTensors piece = some_piece(8, 0, 0, at::kFloat);
  AdamWTensors wide = piece;
  wide.weights = piece.weights.to(at::kDouble);
  EXPECT_FALSE(accepts_adamw(wide));
  AdamWTensors half = piece;
  half.copy = at::zeros({8}, at::kHalf);
  EXPECT_FALSE(accepts_adamw(half));
}

/// Two registries with equal values, bf16 weights and fp32 master weights.
TEST(AdamW, TheOptimizerWithOnePassEqualsItsSteps) {
  at::manual_seed(4);
  comm::SelfCommunicator world;
  const parallel::Mesh mesh(world, {});
  std::array<parallel::ParamRegistry, 2> registries;
  std::array<std::unique_ptr<optim::Optimizer>, 2> optimizers;
  for (std::size_t i = 0; i < 2; ++i) {
    for (const char* unit : {"a", "b"}) {
      registries[i].begin_unit(unit);
      const std::string name(unit);
      registries[i].declare({.name = name + ".matrix", .shape = {5, 13}});
      registries[i].declare({.name = name + ".norm", .shape = {13}, .decay = false});
    }
    registries[i].allocate(mesh, {at::kBFloat16, at::kFloat}, at::kCPU);
    registries[i].initialize(7);
    optimizers[i] = optim::make_optimizer(optim::optimizer_defaults("adamw"), registries[i]);
    EXPECT_TRUE(optimizers[i]->has_one_pass());
  }
  constexpr double kFactor = 0.5;
  for (std::int64_t update = 1; update <= 3; ++update) {
    for (std::size_t unit = 0; unit < 2; ++unit) {
      const at::Tensor grads = random(registries[0].grad_part(unit).sizes());
      for (parallel::ParamRegistry& registry : registries) registry.grad_part(unit).copy_(grads);
      registries[0].grad_part(unit).mul_(kFactor);
    }
    optimizers[0]->step(update, 0.01);
    registries[0].refresh_trainable();
    registries[1].weights().settle();
    optimizers[1]->step_in_one_pass(update, 0.01, at::scalar_tensor(kFactor, at::kFloat));
    registries[1].weights().publish(/*frozen_too=*/false);
  }
  for (std::size_t unit = 0; unit < 2; ++unit) {
    const at::Tensor master = registries[1].master_part(unit);
    expect_close(master, registries[0].master_part(unit), 1e-6, "master weights");
    EXPECT_TRUE(registries[1].weights().part(unit).equal(master.to(at::kBFloat16)));
  }
  const auto slots = optimizers[1]->slots();
  for (std::size_t i = 0; i < slots.size(); ++i)
    expect_close(slots[i].flat, optimizers[0]->slots()[i].flat, 1e-6, slots[i].name);
}

}  // namespace
}  // namespace trireme::ops::testing
