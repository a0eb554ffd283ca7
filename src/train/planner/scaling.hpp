#pragma once
#include <span>
#include <string>
#include <vector>

#include "train/config/config.hpp"
#include "train/planner/calibration.hpp"

/// Scaling studies: measured steps on few ranks, predicted steps on many.
namespace trireme::planner {

/// One measured all-reduce; `bytes` is the size of the tensor.
struct TimedAllReduce {
  int ranks = 1;
  double bytes = 0;
  double time_s = 0;
};

/// The alpha-beta model of a ring all-reduce: 2 (n-1) alpha + 2 (n-1) / n x bytes x beta.
struct AlphaBeta {
  double alpha_s = 0;          // latency of one hop
  double beta_s_per_byte = 0;  // inverse bandwidth of a rank
  double heldout_error = 0;    // root mean square of relative errors on sizes that were not fitted

  [[nodiscard]] double all_reduce_s(int ranks, double bytes) const;
};

/// Fits both constants to every second size of each number of ranks (least squares of relative
/// errors) and checks them on the other sizes. Needs two or more times that count for each part;
/// throws Error(usage) otherwise.
AlphaBeta fit_alpha_beta(std::vector<TimedAllReduce> times);

/// Returns the links with constants that were fitted to groups within a node.
LinkSpeeds with_node_fit(LinkSpeeds links, const AlphaBeta& fit);

/// Returns the links with constants that were fitted to groups with `per_node` ranks on each of
/// several nodes.
LinkSpeeds with_network_fit(LinkSpeeds links, const AlphaBeta& fit, int per_node);

/// strong: the global batch size is constant. weak: the batch of each data rank is constant.
enum class Scaling { strong, weak };

/// Returns the configuration of a study on `ranks` ranks: global batch size, micro batch size and
/// gradient-accumulation steps. strong keeps train.global_batch and lowers train.micro_batch if
/// needed; weak keeps train.micro_batch and train.accumulation. Throws Error(usage) if the layout or
/// the batch does not divide.
train::RunConfig scaled_config(const train::RunConfig& config, Scaling scaling, int ranks);

/// Returns the cluster of `ranks` ranks with up to `per_node` ranks per node.
Cluster scaled_cluster(const DeviceKind& device, int ranks, int per_node);

struct ScalingPoint {
  int ranks = 1;
  double step_s = 0;
  double tokens_per_s = 0;
  double efficiency = 0;          // throughput per rank relative to the fewest measured ranks
  double comm_compute_ratio = 0;  // exposed communication divided by the rest of the step
  bool is_predicted = false;
};

/// Predicts the step of `config`, the result of scaled_config() for `ranks`, on `cluster`, which may
/// have more ranks because its nodes are whole.
ScalingPoint predict_point(const train::RunConfig& config, int ranks, const Cluster& cluster,
                           const TimeConstants& constants);

/// Returns the predicted MFU of a step with `tokens` tokens over all ranks, by
/// ModelConfig::flops_per_token and the peak of the data sheet.
double predicted_mfu(const train::UpdateFacts& facts, const Cluster& cluster, double tokens);

/// Sorts the points by ranks and sets their efficiency. At least one point must be measured.
void set_efficiency(std::vector<ScalingPoint>& points);

/// Returns a figure of throughput and efficiency against the number of ranks as SVG. Predicted
/// points are hollow and labelled.
std::string scaling_figure(std::span<const ScalingPoint> points, const std::string& title);

}  // namespace trireme::planner
