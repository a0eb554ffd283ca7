#include "train/report/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kQuietSteps = 20;  // least distance of two spike warnings
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Metrics::Metrics(comm::Communicator& world, Measures& measures, const ComputeRates& rates)
    : world_(world),
      measures_(measures),
      rates_(rates),
      loss_(measures.declare({"loss", Combine::weighted_mean})),
      num_targets_(measures.declare({"num_targets", Combine::sum, /*whole=*/true})) {}

void Metrics::loss(double sum, std::int64_t num_terms, std::int64_t num_targets) {
  measures_.record(loss_, sum, static_cast<double>(num_terms));
  measures_.record(num_targets_, static_cast<double>(num_targets));
}

std::optional<MetricsLine> Metrics::report(const StepFacts& facts, double ended_s) {
  std::optional<MetricsLine> line = flush();
  pending_facts_ = facts;
  pending_time_ = unix_time_s();
  mine_.resize(1 + measures_.packed_size());
  all_.resize(mine_.size() * static_cast<std::size_t>(world_.size()));
  mine_[0] = ended_s;
  measures_.pack(std::span(mine_).subspan(1));
  pending_ = world_.all_gather({.input = mine_.data(),
                                .output = all_.data(),
                                .count = mine_.size(),
                                .dtype = DType::f64,
                                .tag = "metrics"});
  return line;
}

std::optional<MetricsLine> Metrics::flush() {
  if (!pending_) return std::nullopt;
  pending_->wait();
  pending_.reset();
  double ended_s = 0;
  std::vector<double> packed;  // measures of all ranks, without the end times
  for (std::size_t at = 0; at < all_.size(); at += mine_.size()) {
    ended_s = std::max(ended_s, all_[at]);
    packed.insert(packed.end(), all_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                  all_.begin() + static_cast<std::ptrdiff_t>(at + mine_.size()));
  }
  const StepFacts& facts = pending_facts_;
  const auto steps = static_cast<double>(facts.num_steps);
  const double step_time_s = (ended_s - ended_s_) / steps;
  const double tokens_per_s = static_cast<double>(facts.step_tokens) / step_time_s;
  ended_s_ = ended_s;

  MetricsLine line;
  line.add("step", facts.step)
      .add("time", pending_time_)
      .add("tokens", facts.tokens)
      .add("grad_norm", facts.grad_norm)
      .add("lr", facts.lr)
      .add("step_time_s", step_time_s)
      .add("tokens_per_s", tokens_per_s)
      .add("mfu", tokens_per_s * rates_.flops_per_token / rates_.peak_flops)
      .add("loss_scale", facts.loss_scale)
      .add("skipped", facts.skipped);
  for (Metric& metric : measures_.combine(packed, steps)) line.metrics.push_back(std::move(metric));
  score(line);
  write(line);
  return line;
}

void Metrics::score(MetricsLine& line) {
  const double loss = line.value("loss");
  const double grad_norm = line.value("grad_norm");
  const auto loss_z = loss_spikes_.score(loss);
  const auto grad_norm_z = grad_norm_spikes_.score(grad_norm);
  line.add("loss_z", loss_z.value_or(kNone)).add("grad_norm_z", grad_norm_z.value_or(kNone));
  const std::int64_t step = pending_facts_.step;
  const bool spike = loss_z.value_or(0) > SpikeDetector::kWarn;
  const bool quiet = warned_step_ > 0 && step - warned_step_ < kQuietSteps;
  if (!spike || quiet || world_.rank() != 0) return;
  warned_step_ = step;
  log::warn(formatted(
      "step {}: the loss jumps to {}, {} robust standard deviations above the last {}; gradient norm {}",
      step, loss, std::lround(*loss_z), SpikeDetector::kWindow, grad_norm));
}

void Metrics::write(const MetricsLine& line) {
  for (const auto& sink : sinks_) sink->write(line);
}

void Metrics::pause() {
  for (const auto& sink : sinks_) sink->pause();
}

void Metrics::restore_windows(const std::string& loss, const std::string& grad_norm) {
  loss_spikes_.restore(loss);
  grad_norm_spikes_.restore(grad_norm);
}

}  // namespace trireme::train
