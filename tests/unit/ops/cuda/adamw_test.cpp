#include "ops/cuda/adamw.hpp"

#include "comm/self/self_communicator.hpp"
#include "optim/optimizer.hpp"
#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

constexpr cuda::AdamWNumbers kNumbers{
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .update = 3};

/// Returns a piece with state, from element `offset` of its storage. fp32 pieces have no copy.
cuda::AdamWTensors some_piece(std::int64_t count, std::int64_t offset, double decay,
                              at::ScalarType type) {
  const auto some = [&] {
    return random({count + offset}).to(at::kFloat).narrow(0, offset, count);
  };
  const at::Tensor copy = type == at::kFloat
                              ? at::Tensor()
                              : at::zeros({count + offset}, type).narrow(0, offset, count);
  return {some(), some(), some(), some().square(), copy, decay};
}

/// Runs ATen's AdamW in fp64 on the gradients times `factor`. Returns weights and averages.
std::array<at::Tensor, 3> expected_update(const cuda::AdamWTensors& piece, double factor) {
  std::array<at::Tensor, 3> all{exact(piece.weights), exact(piece.exp_avg),
                                exact(piece.exp_avg_sq)};
  const at::Tensor step = at::full({}, static_cast<double>(kNumbers.update), at::kFloat);
  at::_fused_adamw_({all[0]}, {exact(piece.grads) * factor}, {all[1]}, {all[2]}, {}, {step},
                    kNumbers.lr, kNumbers.beta1, kNumbers.beta2, piece.decay, kNumbers.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  return all;
}

TEST(CudaAdamW, EqualsAtenInFp64ForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    std::vector<cuda::AdamWTensors> pieces;
    std::vector<std::array<at::Tensor, 3>> expected;
    std::vector<at::Tensor> grads;
    for (const std::int64_t count : {1, 7, 4096, 4099, 64}) {
      for (const std::int64_t offset : {0, 1}) {
        pieces.push_back(some_piece(count, offset, count % 2 == 0 ? 0.1 : 0.0, one.dtype));
        expected.push_back(expected_update(pieces.back(), 0.25));
        grads.push_back(pieces.back().grads.clone());
      }
    }
    cuda::adamw(pieces, kNumbers, at::scalar_tensor(0.25, at::kFloat));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::string at = label + std::to_string(pieces[i].weights.numel());
      expect_close(pieces[i].weights, expected[i][0], 1e-6, at + " weights");
      expect_close(pieces[i].exp_avg, expected[i][1], 1e-6, at + " exp_avg");
      expect_close(pieces[i].exp_avg_sq, expected[i][2], 1e-6, at + " exp_avg_sq");
      EXPECT_TRUE(pieces[i].grads.equal(grads[i])) << at;
      if (!pieces[i].copy.defined()) continue;
      EXPECT_TRUE(pieces[i].copy.equal(pieces[i].weights.to(one.dtype))) << at << " copy";
    }
  });
}

TEST(CudaAdamW, ChangesNothingIfTheFactorIsNotFinite) {
  at::manual_seed(2);
  const HostLauncher host;
  for (const double factor :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const cuda::AdamWTensors piece = some_piece(70, 0, 0.1, at::kBFloat16);
    const at::Tensor weights = piece.weights.clone();
    const at::Tensor exp_avg = piece.exp_avg.clone();
    cuda::adamw({piece}, kNumbers, at::scalar_tensor(factor, at::kFloat));
    EXPECT_TRUE(piece.weights.equal(weights));
    EXPECT_TRUE(piece.exp_avg.equal(exp_avg));
    EXPECT_TRUE(piece.copy.eq(0).all().item<bool>());
  }
}

TEST(CudaAdamW, StartsSeveralLaunchesForManyPieces) {
  at::manual_seed(3);
  const HostLauncher host;
  std::vector<cuda::AdamWTensors> pieces;
  std::vector<std::array<at::Tensor, 3>> expected;
  for (int i = 0; i < 2 * cuda::kAdamWPieces + 1; ++i) {
    pieces.push_back(some_piece(i % 5, 0, 0.1, at::kBFloat16));  // some have no elements
    expected.push_back(expected_update(pieces.back(), 1));
  }
  cuda::adamw(pieces, kNumbers, at::ones({}));
  EXPECT_EQ(host.launches.size(), 3U);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    expect_close(pieces[i].weights, expected[i][0], 1e-6, "piece " + std::to_string(i));
}

/// Two registries with equal values, bf16 weights and fp32 master weights.
TEST(CudaAdamW, TheOptimizerWithOnePassEqualsItsSteps) {
  at::manual_seed(4);
  const HostLauncher host;
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
    EXPECT_FALSE(optimizers[i]->has_one_pass()) << "on a CPU";
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
