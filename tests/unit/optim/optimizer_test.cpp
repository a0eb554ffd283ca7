#include "optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "optim/lion.hpp"
#include "optim/sgd.hpp"
#include "support/optim_keys.hpp"

namespace trireme::optim {
namespace {

constexpr double kLr = 0.01;

/// Weights of 0.5: a matrix, a norm without decay and another matrix; gradients are sin(t).
void run_steps(const OptimConfig& config, at::ScalarType dtype, int steps,
               const std::function<void(parallel::ParamRegistry&, Optimizer&)>& judge) {
  comm::run_ranks(1, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    registry.declare({.name = "matrix", .shape = {3}});
    registry.declare({.name = "norm", .shape = {3}, .decay = false});
    registry.declare({.name = "matrix2", .shape = {3}});
    registry.allocate(mesh, {dtype, dtype}, at::kCPU);
    registry.master_part(0).fill_(0.5);
    const auto optimizer = make_optimizer(config, registry);
    for (int t = 1; t <= steps; ++t) {
      registry.grad_part(0).fill_(std::sin(t));
      optimizer->step(t, kLr);
    }
    judge(registry, *optimizer);
  });
}

/// step(t, gradient, decay) updates one weight, which starts at 0.5.
template <class Scalar>
void expect_follows(const OptimConfig& config, Scalar matrix, double tolerance) {
  run_steps(config, at::kDouble, 6, [&](parallel::ParamRegistry& registry, Optimizer&) {
    Scalar norm = matrix;
    for (int t = 1; t <= 6; ++t) {
      matrix.step(std::sin(t), config.own<typename Scalar::Config>().weight_decay);
      norm.step(std::sin(t), 0);
    }
    for (const parallel::ParamId id : {parallel::ParamId{0}, parallel::ParamId{2}})
      EXPECT_NEAR(registry.main(id)[1].item<double>(), matrix.weight, tolerance);
    EXPECT_NEAR(registry.main(1)[1].item<double>(), norm.weight, tolerance);
  });
}

/// The loop of torch.optim.SGD: the first momentum buffer is the first gradient.
struct ScalarSgd {
  using Config = SgdConfig;
  SgdConfig config;
  double weight = 0.5;
  double buffer = 0;
  bool first = true;

  void step(double grad, double decay) {
    grad += decay * weight;
    if (config.momentum != 0) {
      buffer = first ? grad : config.momentum * buffer + grad;
      first = false;
      grad = config.nesterov ? grad + config.momentum * buffer : buffer;
    }
    weight -= kLr * grad;
  }
};

TEST(Sgd, FollowsTorchWithAndWithoutMomentum) {
  for (const double momentum : {0.0, 0.9}) {
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      OptimConfig config = optimizer_defaults("sgd");
      optim_key<double>(config, "weight_decay") = 0.3;
      optim_key<double>(config, "momentum") = momentum;
      optim_key<bool>(config, "nesterov") = nesterov;
      SCOPED_TRACE(formatted("momentum {}, nesterov {}", momentum, nesterov));

      expect_follows(config, ScalarSgd{config.own<SgdConfig>()}, 1e-14);
    }
  }
}

/// Algorithm 2 of the paper.
struct ScalarLion {
  using Config = LionConfig;
  LionConfig config;
  double weight = 0.5;
  double momentum = 0;

  void step(double grad, double decay) {
    const double direction = config.beta1 * momentum + (1 - config.beta1) * grad;
    const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    weight -= kLr * (sign + decay * weight);
    momentum = config.beta2 * momentum + (1 - config.beta2) * grad;
  }
};

TEST(Lion, FollowsThePaper) {
  OptimConfig config = optimizer_defaults("lion");
  optim_key<double>(config, "weight_decay") = 0.3;
  EXPECT_EQ(config.own<LionConfig>().beta2, 0.99) << "not the default of adamw";

  expect_follows(config, ScalarLion{config.own<LionConfig>()}, 1e-14);
}

TEST(Lion, AZeroGradientMovesNothingButTheDecay) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    registry.declare({.name = "norm", .shape = {3}, .decay = false});
    registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
    registry.master_part(0).fill_(0.5);
    registry.grad_part(0).zero_();

    make_optimizer(optimizer_defaults("lion"), registry)->step(1, kLr);

    EXPECT_TRUE(registry.main(0).eq(0.5).all().item<bool>());
  });
}

/// Tests every optimizer of the table, with its default keys and with other keys.
std::vector<OptimConfig> all_optimizers() {
  std::vector<OptimConfig> all;
  for (const std::string& name : optimizer_names()) {
    all.push_back(optimizer_defaults(name));
    OptimConfig other = optimizer_defaults(name);
    for (OptimizerKey& key : other.keys) {
      if (auto* number = std::get_if<double>(&key.value)) *number = 0.5;
    }
    all.push_back(std::move(other));
  }
  return all;
}

TEST(Optimizer, StateGoesThroughItsSlots) {
  for (const OptimConfig& config : all_optimizers()) {
    SCOPED_TRACE(config.name);
    run_steps(config, at::kFloat, 3, [&](parallel::ParamRegistry& registry, Optimizer& optimizer) {
      const at::Tensor weights = registry.master_part(0).clone();
      std::vector<at::Tensor> saved;
      for (const OptimizerSlot& slot : optimizer.slots()) saved.push_back(slot.flat.clone());
      EXPECT_EQ(saved.size(), num_optimizer_slots(config)) << "memory is counted by them";
      registry.grad_part(0).fill_(0.25);
      optimizer.step(4, kLr);
      const at::Tensor expected = registry.master_part(0).clone();

      registry.master_part(0).copy_(weights);
      const auto restored = make_optimizer(config, registry);
      const std::vector<OptimizerSlot> slots = restored->slots();
      for (std::size_t i = 0; i < slots.size(); ++i) slots[i].flat.copy_(saved[i]);
      restored->step(4, kLr);

      EXPECT_TRUE(registry.master_part(0).equal(expected));
      EXPECT_FALSE(registry.master_part(0).equal(weights)) << "the step did nothing";
    });
  }
}

TEST(Optimizer, SlotsOfOneAreNotTakenForThoseOfAnother) {
  std::set<std::string> names;
  for (const std::string& name : optimizer_names()) {
    OptimConfig config = optimizer_defaults(name);
    if (name == "sgd") optim_key<double>(config, "momentum") = 0.9;
    run_steps(config, at::kFloat, 1, [&](parallel::ParamRegistry&, Optimizer& optimizer) {
      for (const OptimizerSlot& slot : optimizer.slots())
        EXPECT_TRUE(names.insert(slot.name).second) << slot.name << " of " << name;
    });
  }
}

TEST(Optimizer, DefaultsPassTheirChecksAndWrongValuesAreNamed) {
  for (const std::string& name : optimizer_names()) {
    Problems problems;
    check(optimizer_defaults(name), problems);
    EXPECT_TRUE(problems.empty()) << problems.lines()[0];
  }
  const auto problem = [](const char* name, const char* key, auto value) {
    OptimConfig config = optimizer_defaults(name);
    optim_key<decltype(value)>(config, key) = value;
    Problems problems;
    check(config, problems);
    return problems.empty() ? "" : problems.lines()[0];
  };
  EXPECT_EQ(problem("lion", "beta2", 1.0), "optim.beta2 = 1, must be in [0, 1)");
  EXPECT_EQ(problem("sgd", "momentum", -0.1), "optim.momentum = -0.1, must be in [0, 1)");
  EXPECT_EQ(problem("sgd", "nesterov", true),
            "optim.nesterov = true, needs optim.momentum above 0");
  EXPECT_EQ(problem("adamw", "eps", 0.0), "optim.eps = 0, must be more than 0");
  EXPECT_EQ(problem("sgd", "eps", 0.0), "") << "sgd has no eps";
  EXPECT_EQ(problem("muon", "orthogonalize", std::string("svd")),
            "optim.orthogonalize = svd, must be one of polar_express, newton_schulz, gram, exact");
  EXPECT_EQ(problem("muon", "embed_lr", 0.0),
            "optim.embed_lr = 0, must be more than 0 and at most 1e+06, or -1: optim.lr");
  EXPECT_EQ(problem("normuon", "momentum_end", 1.0), "optim.momentum_end = 1, must be in [0, 1)");
  EXPECT_EQ(problem("normuon", "matrix_beta2", -0.5),
            "optim.matrix_beta2 = -0.5, must be in [0, 1)");
  EXPECT_EQ(problem("muon", "momentum_warmup", std::int64_t{-1}),
            "optim.momentum_warmup = -1, must be 0 or more");
}

TEST(Optimizer, HelpNamesTheOptimizersOfEachKey) {
  const auto help = [](const char* name) {
    for (const OptimizerKey& key : optimizer_keys()) {
      if (key.name == name) return key.help;
    }
    return std::string("no such key");
  };
  EXPECT_EQ(
      help("beta2"),
      "adamw, muon, normuon: second-moment decay, in [0, 1); lion: decay of the momentum, in [0, "
      "1), default 0.99");
  EXPECT_TRUE(help("cautious").ends_with(", default true")) << help("cautious");
  EXPECT_TRUE(help("momentum").starts_with("sgd: ")) << help("momentum");
  EXPECT_TRUE(help("weight_decay").starts_with("adamw, lion, muon, normuon: "))
      << help("weight_decay");
}

TEST(Optimizer, RefusesUnknownNames) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    registry.allocate(mesh, {}, at::kCPU);
    OptimConfig config;
    config.name = "adam";

    try {
      (void)make_optimizer(config, registry);
      FAIL() << "adam is none";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      for (const char* words :
           {"optim.name = adam, must be one of adamw, ", "did you mean 'adamw'?"})
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace trireme::optim
