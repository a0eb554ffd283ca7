#include "optim/muon.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <mutex>

#include "comm/thread/thread_world.hpp"
#include "support/optim_keys.hpp"

namespace trireme::optim {
namespace {

constexpr double kRunLr = 0.01;

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
    const double mu = t <= 3 ? 0.85 + 0.1 * (t - 1) / 3 : 0.95;
    momentum = mu * momentum + (1 - mu) * grad;
    at::Tensor o = polar_express((1 - mu) * grad + mu * momentum);
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
    weight = weight - c.matrix_lr * c.adamw.weight_decay * decays * weight -
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
    const auto optimizer = make_optimizer(config, registry);
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

/// Matrices that tp splits by rows, by columns, with rows that two ranks hold, and not at all; and
/// a stack that it splits inside.
void declare_split(parallel::ParamRegistry& registry) {
  using parallel::DimSplit;
  registry.declare({.name = "rows", .shape = {10, 3}, .split = DimSplit{.dim = 0, .grain = 2}});
  registry.declare({.name = "columns", .shape = {6, 50}, .split = DimSplit{.dim = 1}});
  registry.declare({.name = "norm", .shape = {3}, .decay = false});
  registry.declare(
      {.name = "keys", .shape = {6, 7}, .split = DimSplit{.dim = 0, .grain = 2, .readers = 9}});
  registry.declare({.name = "whole", .shape = {50, 7}});
  registry.declare({.name = "stack", .shape = {3, 2, 5, 4}, .split = DimSplit{.dim = 2}});
}

/// Sets every element of a state buffer to its index in the parameter.
void fill_with_indices(const parallel::ParamRegistry& registry, const at::Tensor& state) {
  for (const ParamRange& range : param_ranges(registry)) {
    const std::vector<std::int64_t>& shape = registry.spec(range.id).shape;
    for (const parallel::SliceRun& run :
         parallel::intersect(shape, range.slice, parallel::Slice::whole(shape)))
      range.elements.state(registry, state)
          .narrow(0, run.source_index, run.count)
          .copy_(at::arange(run.target_index, run.target_index + run.count));
  }
}

TEST(MatrixExchange, GathersEveryMatrixOnOneOwnerAndScattersItToAllHolders) {
  std::mutex mutex;
  std::map<std::pair<std::int64_t, std::int64_t>, int> owned;  // matrices by shape
  comm::run_ranks(6, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {.tp = 2, .zero = 1});
    parallel::ParamRegistry registry;
    declare_split(registry);
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    const parallel::UnitLayout& layout = registry.layout();
    const MatrixExchange exchange(
        registry, {layout.dense_grid(), layout.expert_grid(), layout.persist()}, false);
    const at::Tensor state = registry.make_state();
    fill_with_indices(registry, state);
    const at::Tensor sent = exchange.make_sent();
    for (const MatrixRun& run : exchange.sent_runs())
      sent.narrow(0, run.begin, run.elements.count).copy_(run.elements.state(registry, state));
    const at::Tensor gathered = exchange.gather(sent);
    const at::Tensor scattered = exchange.make_scattered(gathered);
    std::vector<at::Tensor> lines = exchange.gather_lines(state);
    for (std::size_t i = 0; i < exchange.num_owned(); ++i) {
      const Matrix& shape = exchange.owned(i);
      const at::Tensor whole = exchange.whole(gathered, i);
      const std::int64_t first = whole[0][0].item<std::int64_t>();
      EXPECT_EQ(first % (shape.rows * shape.columns), 0);
      EXPECT_TRUE(whole.flatten().equal(
          at::arange(first, first + shape.rows * shape.columns).to(at::kDouble)));
      EXPECT_TRUE(lines[i].equal(shape.rows >= shape.columns ? whole.select(1, 0) : whole[0]));
      exchange.put(whole * 2, i, scattered);
      lines[i] = lines[i] + 0.5;
      const std::lock_guard lock(mutex);
      ++owned[{shape.rows, shape.columns}];
    }
    const at::Tensor returned = exchange.scatter(scattered);
    std::int64_t count = 0;
    for (const MatrixRun& run : exchange.returned_runs()) {
      const at::Tensor values = run.elements.state(registry, state);
      EXPECT_TRUE(returned.narrow(0, run.begin, run.elements.count).equal(values * 2));
      count += run.elements.count;
    }
    std::int64_t held = 0;
    const at::Tensor expected = state.clone();
    for (const ParamRange& range : param_ranges(registry)) {
      const parallel::ParamSpec& spec = registry.spec(range.id);
      if (!has_matrices(spec)) continue;
      held += range.slice.count();
      const std::int64_t rows = spec.shape[spec.shape.size() - 2];
      const std::int64_t columns = spec.shape.back();
      const at::Tensor elements =
          range.elements.state(registry, expected).narrow(0, 0, range.slice.count());
      const at::Tensor in_line = rows >= columns ? elements.remainder(columns).eq(0)
                                                 : elements.remainder(rows * columns).lt(columns);
      elements.add_(in_line.to(at::kDouble) * 0.5);
    }
    EXPECT_EQ(count, held);
    exchange.scatter_lines(lines, state);
    EXPECT_TRUE(state.equal(expected));
  });
  const std::map<std::pair<std::int64_t, std::int64_t>, int> all{
      {{10, 3}, 1}, {{6, 50}, 1}, {{6, 7}, 1}, {{50, 7}, 1}, {{5, 4}, 6}};
  EXPECT_EQ(owned, all);
}

TEST(MatrixPlan, OwnersHaveAboutEqualCosts) {
  parallel::ParamRegistry registry;
  registry.declare({.name = "large", .shape = {64, 32}});
  for (int i = 0; i < 9; ++i) registry.declare({.name = cat("middle", i), .shape = {32, 32}});
  registry.declare({.name = "experts", .shape = {12, 16, 32}});
  constexpr int kRanks = 4;
  const StageGrids grids{{1, 0, kRanks, 0, 1, 0}, {}, 0};
  std::array<std::int64_t, kRanks> costs{};
  for (const Matrix& one : make_matrix_plan(registry, grids, false).matrices)
    costs.at(static_cast<std::size_t>(one.owner)) +=
        one.rows * one.columns * std::min(one.rows, one.columns);

  const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  EXPECT_LE(*most - *least, 16 * 16 * 32) << "the smallest matrix";
}

}  // namespace
}  // namespace trireme::optim
