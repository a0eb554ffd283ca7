#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "model/stages/stages.hpp"
#include "pipeline/simulate.hpp"
#include "train/planner/action_costs.hpp"

namespace trireme::planner {

/// The predicted time of one optimizer step, for the slowest rank.
struct StepTime {
  double step_s = 0;
  Seconds spent;          // computation and exposed communication
  double transfer_s = 0;  // time that pp messages add to the step
  double optimizer_s = 0;
  double bubble_share = 0;  // idle / busy time of all ranks of pp, as in metrics.jsonl
};

/// Predicts step times of one model and its variants on a cluster: the costs of stages, a
/// simulation of the pipeline schedule, exposed communication over data ranks, and the optimizer.
/// Caches schedules.
class StepPredictor {
 public:
  StepPredictor(Cluster cluster, const TimeConstants& constants)
      : cluster_(std::move(cluster)), constants_(constants) {}

  void use(const TimeConstants& constants) { constants_ = constants; }

  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

  StepTime predict(const train::UpdateFacts& facts);

  /// Returns a lower bound of predict() in a fraction of the time; counts only the fill of a
  /// pipeline.
  double least_s(const train::UpdateFacts& facts);

 private:
  using StageKey = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, int,
                              std::string, std::string>;
  using ScheduleKey = std::tuple<std::string, std::int64_t, std::int64_t, int>;

  /// The cost of a pipeline rank for one micro batch, and its weights.
  struct RankWork {
    ActionCost cost;
    train::Elements weights;
  };

  struct Stages {
    std::vector<ActionCost> costs;  // cost of each stage
    std::vector<RankWork> ranks;    // work of each pipeline rank
  };

  Stages stages_of(const train::UpdateFacts& facts, const ActionCosts& costs);
  const std::vector<model::StageRange>& ranges(const train::UpdateFacts& facts);
  const pipeline::Schedule& schedule(const parallel::ParallelConfig& parallel, int micro_batches);
  void run_pipeline(const train::UpdateFacts& facts, const ActionCosts& costs, const Stages& stages,
                    StepTime& time);
  /// Returns the share of a core that each rank has while all compute, at most 1.
  [[nodiscard]] double processors_a_rank() const;

  Cluster cluster_;
  TimeConstants constants_;
  std::map<StageKey, std::vector<model::StageRange>> ranges_;
  std::map<ScheduleKey, pipeline::Schedule> schedules_;
};

}  // namespace trireme::planner
