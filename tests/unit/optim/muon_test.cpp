#include "optim/muon.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <numbers>

#include "comm/thread/thread_world.hpp"
#include "support/optim_keys.hpp"

namespace trireme::optim {
namespace {

constexpr double kRunLr = 0.01;
constexpr int kSteps = 6;  // steps of the run, of which the tests do 5

at::Tensor random_values(std::uint64_t seed, at::IntArrayRef shape) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble);
}

/// Returns U f(S) V^T.
at::Tensor with_singular_values(const at::Tensor& matrix,
                                const std::function<at::Tensor(const at::Tensor&)>& f) {
  const auto [u, values, vh] = at::linalg_svd(matrix, /*full_matrices=*/false);
  return u.mm(f(values).diag()).mm(vh);
}

/// Returns the oracle of an iterative method: the polynomials act on each singular value.
at::Tensor iterated_values(const at::Tensor& matrix, double factor, double eps,
                           const std::vector<std::array<double, 3>>& iterations) {
  const double norm = std::sqrt(matrix.square().sum().item<double>());
  return with_singular_values(matrix, [&](const at::Tensor& values) {
    at::Tensor s = values / (factor * norm + eps);
    for (const auto& [a, b, c] : iterations) s = a * s + b * s.pow(3) + c * s.pow(5);
    return s;
  });
}

at::Tensor polar_express(const at::Tensor& matrix) {
  return iterated_values(matrix, 1.02, 1e-6,
                         {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                          {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                          {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                          {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                          {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}});
}

double distance(const at::Tensor& one, const at::Tensor& other) {
  return (one - other).abs().max().item<double>();
}

TEST(Orthogonalize, IterationsChangeSingularValuesByTheirPolynomials) {
  for (const auto& [rows, columns] : {std::pair{5, 9}, {9, 5}, {6, 6}, {1, 4}}) {
    const at::Tensor x = random_values(1, {3, rows, columns});
    const at::Tensor express = orthogonalized(x, Orthogonalize::polar_express);
    const at::Tensor newton = orthogonalized(x, Orthogonalize::newton_schulz);
    const at::Tensor gram = orthogonalized(x, Orthogonalize::gram);
    for (int i = 0; i < 3; ++i) {
      const std::array quintic{3.4445, -4.7750, 2.0315};
      EXPECT_LT(distance(express[i], polar_express(x[i])), 1e-11) << rows;
      EXPECT_LT(distance(newton[i], iterated_values(x[i], 1, 1e-7,
                                                    {quintic, quintic, quintic, quintic, quintic})),
                1e-11)
          << rows;
      EXPECT_LT(distance(gram[i], express[i]), 1e-10) << rows;
      const at::Tensor values = std::get<1>(at::linalg_svd(express[i], /*full_matrices=*/false));
      EXPECT_LT(distance(values, at::ones_like(values)), 0.15) << rows;
    }
  }
}

TEST(Orthogonalize, ExactIsThePolarFactor) {
  const at::Tensor x = random_values(2, {4, 7, 3});
  const at::Tensor found = orthogonalized(x, Orthogonalize::exact);
  for (int i = 0; i < 4; ++i) {
    // X (X^T X)^(-1/2), by the eigenvalues of the symmetric matrix.
    const auto [values, vectors] = at::linalg_eigh(x[i].t().mm(x[i]));
    const at::Tensor root = vectors.mm(values.rsqrt().diag()).mm(vectors.t());
    EXPECT_LT(distance(found[i], x[i].mm(root)), 1e-12);
  }
  EXPECT_LT(
      distance(orthogonalized(x.transpose(1, 2), Orthogonalize::exact), found.transpose(1, 2)),
      1e-12);
}

TEST(Orthogonalize, ZeroSingularValuesStayZero) {
  const at::Tensor column = random_values(3, {5, 1});
  const at::Tensor row = random_values(4, {1, 8});
  const at::Tensor x = at::stack({column.mm(row), at::zeros({5, 8}, at::kDouble)});
  const at::Tensor direction = column.mm(row) / (column.norm() * row.norm());
  for (std::size_t method = 0; method < kOrthogonalizeNames.size(); ++method) {
    const at::Tensor found = orthogonalized(x, static_cast<Orthogonalize>(method));
    EXPECT_LT(distance(found[0], direction), 0.2) << kOrthogonalizeNames.at(method);
    EXPECT_EQ(found[1].abs().max().item<double>(), 0) << kOrthogonalizeNames.at(method);
  }
  EXPECT_LT(distance(orthogonalized(x, Orthogonalize::exact)[0], direction), 1e-14);
}

/// The update of one matrix, written from the formulas.
struct MatrixOracle {
  at::Tensor weight;
  at::Tensor momentum = at::zeros_like(weight);
  at::Tensor squares = {};

  void step(int t, const at::Tensor& grad, const MuonConfig& c, std::optional<double> beta2) {
    double mu = t <= 3 ? 0.85 + 0.1 * (t - 1) / 3 : 0.95;
    if (c.momentum_final >= 0 && t >= 4) mu += (c.momentum_final - mu) * (t - 4) / 3;
    momentum = mu * momentum + (1 - mu) * grad;
    at::Tensor u = (1 - mu) * grad + mu * momentum;
    if (c.row_equalize) {
      const at::Tensor lengths = u.pow(2).sum(1).sqrt();
      u = (lengths.mean() / lengths).diag().mm(u);
    }
    at::Tensor o = polar_express(u);
    if (c.renormalize) {
      const double side = static_cast<double>(std::min(o.size(0), o.size(1)));
      o = o * std::sqrt(side / o.pow(2).sum().item<double>());
    }
    const bool tall = o.size(0) >= o.size(1);
    if (beta2) {
      const at::Tensor mean = o.pow(2).mean(tall ? 1 : 0, /*keepdim=*/true);
      if (!squares.defined()) squares = at::zeros_like(mean);
      squares = *beta2 * squares + (1 - *beta2) * mean;
      const at::Tensor divided = o / squares.sqrt();
      o = divided * (o.norm() / divided.norm());
    }
    const at::Tensor decays =
        c.cautious ? (o * weight).ge(0).to(at::kDouble) : at::ones_like(weight);
    const double shape = static_cast<double>(o.size(0)) / static_cast<double>(o.size(1));
    double decay = c.adamw.weight_decay;
    if (c.decay_schedule == "linear") decay *= (kSteps - t + 1.0) / kSteps;
    if (c.decay_schedule == "cosine")
      decay *= std::pow(std::cos(std::numbers::pi / 2 * (t - 1) / kSteps), 2);
    weight = weight - c.matrix_lr * decay * decays * weight -
             c.matrix_lr * std::sqrt(std::max(1.0, shape)) * o;
  }
};

/// AdamW (algorithm 2 of the paper) with one rate for all elements.
struct AdamWOracle {
  at::Tensor weight;
  at::Tensor first = at::zeros_like(weight);
  at::Tensor second = at::zeros_like(weight);

  void step(int t, const at::Tensor& grad, double lr, double decay, const AdamWConfig& c) {
    weight = weight - lr * decay * weight;
    first = c.beta1 * first + (1 - c.beta1) * grad;
    second = c.beta2 * second + (1 - c.beta2) * grad.pow(2);
    weight = weight - lr * (first / (1 - std::pow(c.beta1, t))) /
                          ((second / (1 - std::pow(c.beta2, t))).sqrt() + c.eps);
  }
};

/// Tables, a wide and a tall matrix, a stack of four matrices (experts; gate and up), and a norm.
void declare_model(parallel::ParamRegistry& registry) {
  using Table = parallel::ParamSpec::Table;
  registry.declare({.name = "embedding", .shape = {7, 4}, .table = Table::embedding});
  registry.declare({.name = "wide", .shape = {3, 8}});
  registry.declare({.name = "tall", .shape = {8, 3}});
  registry.declare({.name = "stack", .shape = {2, 2, 5, 3}});
  registry.declare({.name = "norm", .shape = {4}, .decay = false});
  registry.declare({.name = "head", .shape = {7, 4}, .table = Table::head});
  registry.declare({.name = "layers.1.skip_scalar", .shape = {1}, .decay = false});
}

OptimConfig test_config(const std::string& name) {
  OptimConfig config = optimizer_defaults(name);
  config.lr = kRunLr;
  optim_key<double>(config, "matrix_lr") = 0.03;
  optim_key<double>(config, "embed_lr") = 0.2;
  optim_key<double>(config, "head_lr") = 0.004;
  optim_key<std::int64_t>(config, "momentum_warmup") = 3;
  optim_key<double>(config, "weight_decay") = 0.5;
  return config;
}

at::Tensor grad_of(const parallel::ParamRegistry& registry, parallel::ParamId id, int t) {
  return random_values(100 * id + static_cast<std::uint64_t>(t), registry.spec(id).shape);
}

/// Trains declare_model() for 5 updates on one process.
void run_updates(const OptimConfig& config, double lr,
                 const std::function<void(parallel::ParamRegistry&, Optimizer&)>& judge) {
  comm::run_ranks(1, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    declare_model(registry);
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      registry.main(id).copy_(random_values(id, registry.spec(id).shape));
    const auto optimizer = make_optimizer(config, registry, kSteps);
    for (int t = 1; t <= 5; ++t) {
      for (parallel::ParamId id = 0; id < registry.size(); ++id)
        registry.master_grad(id).copy_(grad_of(registry, id, t));
      optimizer->step(t, lr);
    }
    judge(registry, *optimizer);
  });
}

void expect_formulas(const OptimConfig& config, std::optional<double> beta2) {
  const auto own = config.own<MuonConfig>();
  run_updates(config, kRunLr, [&](parallel::ParamRegistry& registry, Optimizer&) {
    for (parallel::ParamId id = 0; id < registry.size(); ++id) {
      const parallel::ParamSpec& spec = registry.spec(id);
      const at::Tensor begin = random_values(id, spec.shape);
      at::Tensor expected;
      if (spec.table != parallel::ParamSpec::Table::none || spec.shape.size() == 1) {
        const double lr = spec.name == "embedding" ? 0.2 : spec.name == "head" ? 0.004 : kRunLr;
        AdamWOracle oracle{begin};
        for (int t = 1; t <= 5; ++t)
          oracle.step(t, grad_of(registry, id, t), lr, spec.decay ? 0.5 : 0, own.adamw);
        expected = oracle.weight;
      } else {
        const std::vector<std::int64_t> shape{-1, spec.shape[spec.shape.size() - 2],
                                              spec.shape.back()};
        std::vector<at::Tensor> weights;
        for (const at::Tensor& one : begin.view(shape).unbind()) {
          MatrixOracle oracle{one};
          const auto i = static_cast<std::int64_t>(weights.size());
          for (int t = 1; t <= 5; ++t)
            oracle.step(t, grad_of(registry, id, t).view(shape)[i], own, beta2);
          weights.push_back(oracle.weight);
        }
        expected = at::stack(weights).view(spec.shape);
      }
      EXPECT_LT(distance(registry.main(id), expected), 1e-10) << spec.name;
    }
  });
}

TEST(Muon, FollowsTheFormulasWithAdamWForTablesAndVectors) {
  OptimConfig config = test_config("muon");
  expect_formulas(config, std::nullopt);
  optim_key<bool>(config, "cautious") = true;
  expect_formulas(config, std::nullopt);
}

TEST(NorMuon, FollowsTheFormulas) {
  OptimConfig config = test_config("normuon");
  EXPECT_TRUE(config.own<NorMuonConfig>().cautious);
  optim_key<double>(config, "matrix_beta2") = 0.7;
  expect_formulas(config, 0.7);
}

TEST(Muon, MomentumAndWeightDecayFollowTheirSchedules) {
  for (const char* schedule : {"linear", "cosine"}) {
    OptimConfig config = test_config("muon");
    config.schedule = kWsdSchedule;
    config.decay_steps = 3;  // steps 4 to 6
    optim_key<double>(config, "momentum_final") = 0.4;
    optim_key<std::string>(config, "decay_schedule") = schedule;
    expect_formulas(config, std::nullopt);
  }
}

TEST(NorMuon, ScalesRowsAndNormsByTheirFormulas) {
  for (const char* key : {"row_equalize", "renormalize"}) {
    OptimConfig config = test_config("normuon");
    optim_key<bool>(config, key) = true;
    expect_formulas(config, 0.9);
  }
}

TEST(Muon, AWholeRunHasTheScheduledMomentumAndDecay) {
  MuonConfig config;
  config.momentum_warmup = 40;
  config.momentum_final = 0.75;
  config.adamw.weight_decay = 0.2;
  config.decay_schedule = "cosine";
  config.run = {.peak_lr = 1, .wsd = true, .steps = 200, .decay_begin = 100};
  EXPECT_DOUBLE_EQ(momentum_of(config, 1), 0.85);
  EXPECT_DOUBLE_EQ(momentum_of(config, 21), 0.9);
  EXPECT_DOUBLE_EQ(momentum_of(config, 41), 0.95);
  EXPECT_DOUBLE_EQ(momentum_of(config, 101), 0.95);
  EXPECT_DOUBLE_EQ(momentum_of(config, 151), 0.85);
  EXPECT_DOUBLE_EQ(momentum_of(config, 201), 0.75);
  EXPECT_DOUBLE_EQ(momentum_of(config, 500), 0.75);
  EXPECT_DOUBLE_EQ(weight_decay_of(config, 1), 0.2);
  EXPECT_DOUBLE_EQ(weight_decay_of(config, 101), 0.1);
  EXPECT_NEAR(weight_decay_of(config, 500), 0, 1e-17);
  config.run.steps = 0;
  EXPECT_DOUBLE_EQ(momentum_of(config, 500), 0.95);
  EXPECT_DOUBLE_EQ(weight_decay_of(config, 500), 0.2);
}

TEST(Muon, GroupsHaveValuesOfTheirOwn) {
  OptimConfig config = test_config("muon");
  optim_key<std::string>(config, "groups") =
      "embed.beta2=0.7,head.weight_decay=0.3,scalar.weight_decay=0.25,skip_scalar.lr=0.05,skip_"
      "scalar.beta1=0.2";
  run_updates(config, kRunLr, [&](parallel::ParamRegistry& registry, Optimizer&) {
    const auto expect = [&](parallel::ParamId id, double lr, double decay, AdamWConfig own) {
      AdamWOracle oracle{random_values(id, registry.spec(id).shape)};
      for (int t = 1; t <= 5; ++t) oracle.step(t, grad_of(registry, id, t), lr, decay, own);
      EXPECT_LT(distance(registry.main(id), oracle.weight), 1e-12) << registry.spec(id).name;
    };
    expect(0, 0.2, 0.5, {.beta2 = 0.7});  // embedding
    expect(4, kRunLr, 0.25, {});          // norm
    expect(5, 0.004, 0.3, {});            // head
    expect(6, 0.05, 0, {.beta1 = 0.2});   // skip_scalar
  });
}

TEST(Muon, AllRatesFollowTheScheduleOfTheRun) {
  OptimConfig halves = test_config("muon");
  optim_key<double>(halves, "matrix_lr") = 0.03 / 2;
  optim_key<double>(halves, "embed_lr") = 0.2 / 2;
  optim_key<double>(halves, "head_lr") = 0.004 / 2;
  optim_key<double>(halves, "scalar_lr") = kRunLr / 2;
  std::vector<at::Tensor> weights;
  const auto keep = [&](parallel::ParamRegistry& registry, Optimizer&) {
    weights.push_back(registry.master_part(0).clone());
  };
  run_updates(test_config("muon"), kRunLr / 2, keep);
  run_updates(halves, kRunLr, keep);

  EXPECT_LT(distance(weights[0], weights[1]), 1e-13);
}

TEST(Muon, StateOfMatricesGoesThroughItsSlots) {
  for (const char* name : {"muon", "normuon"}) {
    const OptimConfig config = test_config(name);
    run_updates(config, kRunLr, [&](parallel::ParamRegistry& registry, Optimizer& optimizer) {
      const at::Tensor weights = registry.master_part(0).clone();
      std::vector<at::Tensor> saved;
      for (const OptimizerSlot& slot : optimizer.slots()) saved.push_back(slot.flat.clone());
      optimizer.step(6, kRunLr);
      const at::Tensor expected = registry.master_part(0).clone();

      registry.master_part(0).copy_(weights);
      const auto restored = make_optimizer(config, registry);
      const std::vector<OptimizerSlot> slots = restored->slots();
      for (std::size_t i = 0; i < slots.size(); ++i) slots[i].flat.copy_(saved[i]);
      restored->step(6, kRunLr);

      EXPECT_TRUE(registry.master_part(0).equal(expected)) << name;
    });
  }
}

}  // namespace
}  // namespace trireme::optim
