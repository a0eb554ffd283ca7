#include "train/planner/scaling.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/error.hpp"
#include "core/problems.hpp"
#include "parallel/config.hpp"
#include "train/config/layout.hpp"

namespace trireme::planner {
namespace {

constexpr double kLeastBeta = 1e-15;

/// The factors of alpha and beta in the time of a ring all-reduce.
struct RingTerms {
  double hops;
  double bytes;
};

RingTerms terms_of(int ranks, double bytes) {
  return {2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks * bytes};
}

/// Returns the nonnegative alpha and beta with the least squares of relative errors.
AlphaBeta solve(std::span<const TimedAllReduce> times) {
  double hops_hops = 0;
  double hops_bytes = 0;
  double bytes_bytes = 0;
  double hops = 0;
  double bytes = 0;
  for (const TimedAllReduce& time : times) {
    const RingTerms terms = terms_of(time.ranks, time.bytes);
    const double a = terms.hops / time.time_s;
    const double b = terms.bytes / time.time_s;
    hops_hops += a * a;
    hops_bytes += a * b;
    bytes_bytes += b * b;
    hops += a;
    bytes += b;
  }
  const double determinant = hops_hops * bytes_bytes - hops_bytes * hops_bytes;
  AlphaBeta fit{(hops * bytes_bytes - bytes * hops_bytes) / determinant,
                (bytes * hops_hops - hops * hops_bytes) / determinant, 0};
  if (fit.alpha_s < 0) fit = {0, bytes / bytes_bytes, 0};
  if (fit.beta_s_per_byte < 0) fit = {hops / hops_hops, 0, 0};
  return fit;
}

}  // namespace

double AlphaBeta::all_reduce_s(int ranks, double bytes) const {
  const RingTerms terms = terms_of(ranks, bytes);
  return terms.hops * alpha_s + terms.bytes * beta_s_per_byte;
}

AlphaBeta fit_alpha_beta(std::vector<TimedAllReduce> times) {
  std::ranges::sort(times, {},
                    [](const TimedAllReduce& time) { return std::tuple(time.ranks, time.bytes); });
  std::erase_if(times, [](const TimedAllReduce& time) { return time.ranks < 2; });
  std::vector<TimedAllReduce> fitted;
  std::vector<TimedAllReduce> held_out;
  for (std::size_t i = 0; i < times.size(); ++i)
    (i % 2 == 0 ? fitted : held_out).push_back(times[i]);
  if (held_out.size() < 2)
    fail(ErrorKind::usage,
         "{} times of collectives on two or more ranks do not determine alpha and beta. Measure at "
         "least four sizes",
         times.size());
  AlphaBeta fit = solve(fitted);
  std::vector<double> errors;
  for (const TimedAllReduce& time : held_out)
    errors.push_back(fit.all_reduce_s(time.ranks, time.bytes) / time.time_s - 1);
  fit.heldout_error = rms(errors);
  return fit;
}

LinkSpeeds with_node_fit(LinkSpeeds links, const AlphaBeta& fit) {
  links.latencies.base_s = 0;
  links.latencies.ring_node_s = links.latencies.tree_node_s = fit.alpha_s;
  links.node_bytes_per_s = 1 / std::max(fit.beta_s_per_byte, kLeastBeta);
  return links;
}

LinkSpeeds with_network_fit(LinkSpeeds links, const AlphaBeta& fit, int per_node) {
  links.latencies.base_s = 0;
  links.latencies.ring_network_s = links.latencies.tree_network_s = fit.alpha_s;
  links.network_bytes_per_s = 1 / (std::max(fit.beta_s_per_byte, kLeastBeta) * per_node);
  return links;
}

train::RunConfig scaled_config(const train::RunConfig& config, Scaling scaling, int ranks) {
  train::RunConfig scaled = config;
  train::TrainConfig& train = scaled.train;
  Problems problems;
  train::check_layout(config.parallel,
                      {config.model, {train.seq_len}, ranks, std::nullopt, train.fp8_mode()},
                      problems);
  problems.throw_if_any();
  const std::int64_t data = parallel::data_ranks(config.parallel, ranks);
  if (scaling == Scaling::weak) {
    train.global_batch = data * train.micro_batch * train.accumulation;
    return scaled;
  }
  if (train.global_batch % data != 0)
    fail(ErrorKind::usage,
         "train.global_batch = {} does not divide by the {} data ranks of {} ranks. Strong scaling "
         "keeps the global batch: give a multiple of {}",
         train.global_batch, data, ranks, data);
  const std::int64_t rows = train.global_batch / data;
  train.micro_batch = std::min(train.micro_batch, rows);
  while (rows % train.micro_batch != 0) --train.micro_batch;
  train.accumulation = rows / train.micro_batch;
  train::check_micro_batches(scaled.parallel, train.accumulation);
  return scaled;
}

Cluster scaled_cluster(const DeviceKind& device, int ranks, int per_node) {
  const int here = std::min(ranks, per_node);
  return {device, (ranks + here - 1) / here, here};
}

ScalingPoint predict_point(const train::RunConfig& config, int ranks, const Cluster& cluster,
                           const TimeConstants& constants) {
  StepPredictor predictor(cluster, constants);
  const StepTime time = predictor.predict(train::facts_of_run(config, ranks));
  ScalingPoint point;
  point.ranks = ranks;
  point.step_s = time.step_s;
  const train::TrainConfig& train = config.train;
  point.tokens_per_s = static_cast<double>(train.global_batch * train.seq_len) / time.step_s;
  const double exposed =
      time.spent.tp + time.spent.cp + time.spent.ep + time.spent.dp + time.transfer_s;
  point.comm_compute_ratio = exposed / (time.step_s - exposed);
  point.is_predicted = true;
  return point;
}

double predicted_mfu(const train::UpdateFacts& facts, const Cluster& cluster, double tokens) {
  StepPredictor predictor(cluster, TimeConstants{});
  const double flops = tokens * facts.model.flops_per_token(facts.length, trained_parts(facts));
  return flops / predictor.predict(facts).step_s / facts.ranks / cluster.device.peak_flops;
}

void set_efficiency(std::vector<ScalingPoint>& points) {
  std::ranges::stable_sort(points, {}, &ScalingPoint::ranks);
  const auto base = std::ranges::find(points, false, &ScalingPoint::is_predicted);
  TRIREME_ASSERT(base != points.end());
  const double per_rank = base->tokens_per_s / base->ranks;
  for (ScalingPoint& point : points) point.efficiency = point.tokens_per_s / point.ranks / per_rank;
}

}  // namespace trireme::planner
