/// Tests the forms of data parallelism besides plain sums: their results and their traffic.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "comm/self/self_communicator.hpp"
#include "comm/traffic.hpp"
#include "support/train_layout.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme {
namespace {

using testing::Shape;

constexpr double kBound = 1e-10;   // fp64: the order of sums differs
constexpr std::int64_t kRows = 2;  // rows of one data rank in one update

/// A model and its step on one rank.
struct Trainer {
  Trainer(comm::Communicator& ranks, const parallel::ParallelConfig& parallel,
          const optim::OptimConfig& optim, device::ParamDTypes dtypes = {at::kDouble, at::kDouble})
      : world(ranks),
        mesh(ranks, parallel),
        model(registry, testing::model_config(shape),
              {ops::Path::plain,
               parallel::Recompute::none,
               7,
               {mesh.group(parallel::Axis::tp), false},
               parallel::context_group(mesh)}) {
    registry.allocate(mesh, dtypes, at::kCPU);
    model.prepare();
    registry.initialize(7);
    objective = std::make_unique<objective::CrossEntropy>(registry, model.head_weight(),
                                                          ops::Path::plain, model.tensor());
    optimizer = optim::make_optimizer(optim, registry);
    step = std::make_unique<train::Step>(
        train::StepParts{model, *objective, *optimizer, scaler, mesh, measures}, optim.clip_norm);
  }

  train::UpdateResult update(std::int64_t number, std::int64_t first_sample, std::int64_t targets) {
    const data::Batch batch =
        train::make_rows({first_sample, first_sample + 1}, shape.length, shape.vocab);
    return step->run({&batch, 1}, targets, number, number, 1e-2);
  }

  /// Returns the weights, then the optimizer state.
  [[nodiscard]] std::vector<at::Tensor> state() const {
    const parallel::Gathering gathering(registry, world);
    std::vector<at::Tensor> all{gathering.weights()};
    for (const optim::OptimizerSlot& slot : optimizer->slots())
      all.push_back(
          gathering.all([&](std::size_t unit) { return registry.part_of(slot.flat, unit); }));
    return all;
  }

  static constexpr Shape shape{};
  comm::Communicator& world;
  parallel::Mesh mesh;
  parallel::ParamRegistry registry;
  model::Transformer model;
  std::unique_ptr<objective::CrossEntropy> objective;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::LossScaler scaler{false};
  Measures measures;
  std::unique_ptr<train::Step> step;
};

optim::OptimConfig adamw_that_clips() {
  optim::OptimConfig optim = optim::optimizer_defaults("adamw");
  optim.clip_norm = 0.05;
  return optim;
}

/// All ranks must agree on this number; its value does not matter.
constexpr std::int64_t kTargetsOfUpdate = 24;

struct Expected {
  std::vector<at::Tensor> state;
  std::vector<double> norms;
};

/// Trains independent processes and averages their weights after every `local_steps` and at the
/// end.
Expected trained_alone(int dp, std::int64_t steps, std::int64_t local_steps) {
  comm::SelfCommunicator self;
  std::vector<std::unique_ptr<Trainer>> ranks;
  for (int rank = 0; rank < dp; ++rank)
    ranks.push_back(
        std::make_unique<Trainer>(self, parallel::ParallelConfig{}, adamw_that_clips()));
  const auto average_of = [&](auto&& tensor_of) {
    at::Tensor mean = at::zeros_like(tensor_of(*ranks[0]));
    for (const auto& one : ranks) mean.add_(tensor_of(*one), 1.0 / dp);
    for (const auto& one : ranks) tensor_of(*one).copy_(mean);
  };
  Expected expected;
  for (std::int64_t number = 1; number <= steps; ++number) {
    double squares = 0;
    for (int rank = 0; rank < dp; ++rank) {
      const std::int64_t first = ((number - 1) * dp + rank) * kRows;
      squares += std::pow(ranks[static_cast<std::size_t>(rank)]
                              ->update(number, first, kTargetsOfUpdate / dp)
                              .grad_norm,
                          2);
    }
    expected.norms.push_back(std::sqrt(squares / dp));
    if (number % local_steps != 0 && number != steps) continue;
    for (std::size_t unit = 0; unit < ranks[0]->registry.layout().units().size(); ++unit)
      average_of([&](Trainer& one) { return one.registry.master_part(unit); });
    for (std::size_t slot = 0; slot < ranks[0]->optimizer->slots().size(); ++slot)
      average_of([&](Trainer& one) { return one.optimizer->slots()[slot].flat; });
    for (const auto& one : ranks) one->registry.refresh_weights();
  }
  expected.state = ranks[0]->state();
  return expected;
}

TEST(LocalSteps, AreProcessesThatTrainAloneAveragedEveryFewUpdates) {
  constexpr std::int64_t kSteps = 5;
  constexpr std::int64_t kLocalSteps = 2;
  for (const auto& [dp, tp, cp] : {std::array{2, 1, 1}, {3, 1, 1}, {2, 2, 1}, {2, 1, 2}}) {
    const Expected expected = trained_alone(dp, kSteps, kLocalSteps);
    comm::run_ranks(dp * tp * cp, [&, tp = tp, cp = cp, dp = dp](comm::Communicator& world) {
      parallel::ParallelConfig parallel;
      parallel.tp = tp;
      parallel.cp = cp;
      parallel.local_steps = kLocalSteps;
      Trainer trainer(world, parallel, adamw_that_clips());
      for (std::int64_t number = 1; number <= kSteps; ++number) {
        const std::int64_t first =
            ((number - 1) * dp + trainer.mesh.rank(parallel::Axis::dp)) * kRows;
        const double norm = trainer.update(number, first, kTargetsOfUpdate).grad_norm;
        const double wanted = expected.norms[static_cast<std::size_t>(number - 1)];
        EXPECT_NEAR(norm, wanted, kBound * wanted) << "dp " << dp << " tp " << tp << " cp " << cp;
      }
      trainer.step->average_replicas();
      const std::vector<at::Tensor> state = trainer.state();
      ASSERT_EQ(state.size(), expected.state.size());
      for (std::size_t i = 0; i < state.size(); ++i) {
        const double difference = (state[i] - expected.state[i]).abs().max().item<double>();
        EXPECT_LE(difference, kBound * expected.state[i].abs().max().item<double>())
            << "dp " << dp << " tp " << tp << " cp " << cp << ", " << i;
      }
    });
  }
}

TEST(LocalSteps, SendOneShareOfTheBytesAndAverageEqualCopiesNoMore) {
  constexpr std::int64_t kSteps = 8;
  optim::OptimConfig sgd =
      optim::optimizer_defaults("sgd");  // without momentum, only weights are averaged
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const auto payload = [&](std::int64_t local_steps) {
      parallel::ParallelConfig parallel;
      parallel.local_steps = local_steps;
      Trainer trainer(world, parallel, sgd);
      std::uint64_t bytes = 0;
      for (std::int64_t number = 1; number <= kSteps; ++number)
        trainer.update(number, ((number - 1) * 2 + world.rank()) * kRows, kTargetsOfUpdate);
      trainer.step->average_replicas();
      for (const parallel::Axis axis :
           {parallel::Axis::dp, parallel::Axis::replica, parallel::Axis::cp})
        for (const comm::TrafficRow& row : trainer.mesh.group(axis).traffic())
          if (row.operation == "all_reduce") bytes += row.moved_bytes.value_or(0);
      return bytes;
    };
    const std::uint64_t plain = payload(1);
    EXPECT_GT(plain, 0U);
    EXPECT_EQ(payload(4) * 4, plain);
    EXPECT_EQ(payload(8) * 8, plain);
  });
}

TEST(LocalSteps, HaveNoEffectOnOneDataRank) {
  comm::SelfCommunicator self;
  parallel::ParallelConfig local;
  local.local_steps = 4;
  Trainer alone(self, local, adamw_that_clips());
  Trainer plain(self, {}, adamw_that_clips());
  for (std::int64_t number = 1; number <= 3; ++number) {
    alone.update(number, number * kRows, kTargetsOfUpdate);
    plain.update(number, number * kRows, kTargetsOfUpdate);
  }
  EXPECT_TRUE(alone.state()[0].equal(plain.state()[0]));
}

TEST(Hierarchical, TrainsAsOneProcessDoes) {
  train::RunConfig config;
  config.model = model::model_preset("tiny");
  config.parallel.hierarchical = true;
  config.parallel.bucket_mb = 0.01;
  for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    config.parallel.tp = tp;
    config.parallel.cp = cp;
    comm::run_ranks(8, [&](comm::Communicator& world) {
      const train::LayoutComparison comparison =
          train::verify_layout(world, config, 2, at::kCPU, {0, 0, 0, 0, 1, 1, 1, 1});
      if (world.rank() == 0) {
        EXPECT_TRUE(comparison.equal()) << comparison.grad_rel << " " << comparison.grad_worst;
      }
    });
  }
}

// Experts are in parts on several ranks, and the other weights are in one part.
TEST(ExpertShards, TheOtherWeightsSumTheirGradientsOnceAnUpdate) {
  train::RunConfig config;
  config.model = model::model_preset("tiny");
  config.model.moe.num_experts = 4;
  config.train.accumulation = 3;
  config.parallel.etp = 1;
  const auto compare = [&](int ranks) {
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      const train::LayoutComparison comparison = train::verify_layout(world, config, 2, at::kCPU);
      if (world.rank() != 0) return;
      EXPECT_TRUE(comparison.equal()) << ranks << " ranks, zero " << config.parallel.zero << ": "
                                      << comparison.grad_rel << " " << comparison.grad_worst;
      EXPECT_EQ(comparison.audit, "");
    });
  };
  for (const std::int64_t zero : {2, 3}) {
    config.parallel.zero = zero;
    config.parallel.tp = 2;
    config.parallel.zero_shard = 0;
    for (const bool sequence_parallel : {false, true}) {
      config.parallel.sequence_parallel = sequence_parallel;
      compare(2);
    }
    config.parallel.zero_shard = 1;
    compare(4);
    config.parallel.zero_shard = 0;
    config.parallel.tp = 4;
    config.parallel.ep = 2;
    compare(4);
    config.parallel.ep = 1;
  }
}

/// Returns weights and optimizer state after three updates on two or more ranks.
std::vector<at::Tensor> trained(const parallel::ParallelConfig& parallel, int ranks,
                                device::ParamDTypes dtypes, bool one_place) {
  std::vector<at::Tensor> state;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    Trainer trainer(world, parallel, adamw_that_clips(), dtypes);
    for (std::int64_t number = 1; number <= 3; ++number)
      trainer.update(number, ((number - 1) * ranks + world.rank()) * kRows, kTargetsOfUpdate);
    const bool same =
        trainer.registry.master_part(0).is_alias_of(trainer.registry.weights().part(0));
    EXPECT_EQ(same, one_place && dtypes.compute == dtypes.main);
    const std::vector<at::Tensor> mine = trainer.state();
    if (world.rank() == 0) state = mine;
  });
  return state;
}

TEST(ZeroPersist, LeavesTheOtherUnitsGatheredForEachUse) {
  const auto gathers_of_update = [](std::int64_t persist) {
    comm::TrafficRow row;
    comm::run_ranks(2, [&](comm::Communicator& world) {
      parallel::ParallelConfig parallel;
      parallel.zero = 3;
      parallel.zero_persist = persist;
      Trainer trainer(world, parallel, adamw_that_clips());
      const comm::Communicator& group = trainer.mesh.group(parallel::Axis::shard);
      const std::vector<comm::TrafficRow> before = group.traffic();
      trainer.update(1, world.rank() * kRows, kTargetsOfUpdate);
      if (world.rank() == 0)
        row = comm::total_traffic(comm::traffic_between(before, group.traffic()), "all_gather");
    });
    return row;
  };
  const comm::TrafficRow plain = gathers_of_update(0);
  const comm::TrafficRow persistent = gathers_of_update(20);

  // The head's unit has only a norm. Its gather becomes part of the gather of all norms after the
  // update.
  EXPECT_EQ(persistent.count, plain.count);
  EXPECT_LT(persistent.payload_bytes, plain.payload_bytes);
}

TEST(Offload, OffloadingTheOptimizerGivesTheSameBits) {
  for (const device::ParamDTypes dtypes : {device::ParamDTypes{at::kFloat, at::kFloat},
                                           device::ParamDTypes{at::kBFloat16, at::kFloat}}) {
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      parallel::ParallelConfig parallel;
      parallel.zero = zero;
      parallel.zero_persist = 20;
      const std::vector<at::Tensor> expected = trained(parallel, 2, dtypes, /*one_place=*/true);
      parallel.offload = "optimizer";
      const std::vector<at::Tensor> offloaded = trained(parallel, 2, dtypes, /*one_place=*/false);
      ASSERT_EQ(offloaded.size(), 3U);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(offloaded[i].equal(expected[i])) << "zero " << zero << ", " << i;
    }
  }
}

TEST(Offload, GoesWithLocalSteps) {
  parallel::ParallelConfig parallel;
  parallel.local_steps = 3;
  const auto expected = trained(parallel, 2, {at::kFloat, at::kFloat}, /*one_place=*/true);
  parallel.offload = "optimizer";
  const auto offloaded = trained(parallel, 2, {at::kFloat, at::kFloat}, /*one_place=*/false);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(offloaded[i].equal(expected[i]));
}

}  // namespace
}  // namespace trireme
