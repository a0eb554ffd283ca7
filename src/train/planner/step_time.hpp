#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "model/stages/stages.hpp"
#include "pipeline/simulate.hpp"
#include "train/planner/pass_costs.hpp"

namespace trireme::planner {

/// An update as it is predicted; of the slowest rank.
struct StepTime {
  double step_s = 0;
  Seconds spent;          // in all passes and sums; exchanges that nothing hides
  double transfer_s = 0;  // of pp, by which transfers make the update longer
  double optimizer_s = 0;
  double bubble_share = 0;  // idle over busy time of all ranks of pp, as metrics.jsonl has it
};

/// Predicts updates of one model and its variants on a cluster: costs of stages, then the schedule
/// of a pipeline pass by pass, then sums and gathers over data ranks as far as passes do not hide
/// them, then the optimizer. Keeps schedules for the next one.
class StepPredictor {
 public:
  StepPredictor(Cluster cluster, const TimeConstants& constants)
      : cluster_(std::move(cluster)), constants_(constants) {}

  void use(const TimeConstants& constants) { constants_ = constants; }

  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

  StepTime predict(const UpdateFacts& facts);

  /// Not above predict(), in a fraction of its time: a pipeline only fills.
  double least_s(const UpdateFacts& facts);

 private:
  using StageKey = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, int,
                              std::string, std::string>;
  using ScheduleKey = std::tuple<std::string, std::int64_t, std::int64_t, int>;

  /// What a rank of pp does for one micro-batch, and its weights.
  struct RankWork {
    PassCost cost;
    Elements weights;
  };

  struct Stages {
    std::vector<PassCost> costs;  // of each stage
    std::vector<RankWork> ranks;  // of each rank of pp
  };

  Stages stages_of(const UpdateFacts& facts, const PassCosts& costs);
  const std::vector<StageRange>& ranges(const UpdateFacts& facts);
  const pipeline::Schedule& schedule(const ParallelConfig& parallel, int micro_batches);
  void run_pipeline(const UpdateFacts& facts, const PassCosts& costs, const Stages& stages,
                    StepTime& time);
  /// Cores that a rank has while all compute, at most 1 of them.
  [[nodiscard]] double processors_a_rank() const;

  Cluster cluster_;
  TimeConstants constants_;
  std::map<StageKey, std::vector<StageRange>> ranges_;
  std::map<ScheduleKey, pipeline::Schedule> schedules_;
};

}  // namespace trireme::planner
