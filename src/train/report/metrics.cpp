#include "train/report/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/rounded_text.hpp"
#include "core/timer.hpp"
#include "train/report/slowest.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kQuietSteps = 20;  // least distance of two spike warnings
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Metrics::Metrics(comm::Communicator& world, Measures& measures, const ComputeRates& rates,
                 WriterThread* files)
    : world_(world),
      measures_(measures),
      rates_(rates),
      loss_(measures.declare({"loss", Combine::weighted_mean})),
      num_targets_(measures.declare({"num_targets", Combine::sum, /*whole=*/true})),
      files_(files) {}

void Metrics::loss(double sum, std::int64_t num_terms, std::int64_t num_targets) {
  measures_.record(loss_, sum, static_cast<double>(num_terms));
  measures_.record(num_targets_, static_cast<double>(num_targets));
}

void Metrics::report_ranks(std::int64_t every, std::vector<Measures::Id> ids) {
  ranks_every_ = every;
  rank_ids_ = std::move(ids);
}

std::optional<MetricsLine> Metrics::report(const StepFacts& facts, double ended_s) {
  std::optional<MetricsLine> line = flush();
  gather_ranks(facts);
  next_ = Report{facts, unix_time_s(), {}, {ended_s}, {}};
  next_->packed = measures_.pack(next_->sums, next_->maxima, world_.rank());
  return line;
}

Metrics::Numbers Metrics::begin_reduction() {
  if (!next_) return {};
  reduced_ = std::exchange(next_, std::nullopt);
  return {reduced_->sums, reduced_->maxima};
}

std::optional<MetricsLine> Metrics::reduced() {
  if (!reduced_) return std::nullopt;
  MetricsLine line = line_of(*reduced_);
  reduced_.reset();
  write(line);
  return line;
}

std::optional<MetricsLine> Metrics::flush() {
  write_ranks();
  if (!next_) return std::nullopt;
  const Numbers numbers = begin_reduction();
  for (const auto& [values, op] : {std::pair{numbers.sums, comm::ReduceOp::sum},
                                   std::pair{numbers.maxima, comm::ReduceOp::max}}) {
    world_
        .all_reduce({.input = values.data(),
                     .output = values.data(),
                     .count = values.size(),
                     .dtype = DType::f64,
                     .op = op,
                     .tag = "metrics"})
        ->wait();
  }
  return reduced();
}

MetricsLine Metrics::line_of(const Report& report) {
  const StepFacts& facts = report.facts;
  const auto steps = static_cast<double>(facts.num_steps);
  std::span<const double> sums = report.sums;
  std::span<const double> maxima = report.maxima;
  const double ended_s = maxima.front();
  maxima = maxima.subspan(1);
  const double step_time_s = (ended_s - ended_s_) / steps;
  const double tokens_per_s = static_cast<double>(facts.step_tokens) / step_time_s;
  ended_s_ = ended_s;

  MetricsLine line;
  line.add("step", facts.step)
      .add("time", report.time)
      .add("tokens", facts.tokens)
      .add("grad_norm", facts.grad_norm)
      .add("lr", facts.lr)
      .add("step_time_s", step_time_s)
      .add("tokens_per_s", tokens_per_s)
      .add("mfu", tokens_per_s * rates_.flops_per_token / rates_.peak_flops)
      .add("loss_scale", facts.loss_scale)
      .add("skipped", facts.skipped);
  for (Metric& metric : measures_.combine(report.packed, sums, maxima, steps, world_.size()))
    line.metrics.push_back(std::move(metric));
  if (const double energy_j = line.value_or("energy_j", 0); energy_j > 0)
    line.add("tokens_per_j", static_cast<double>(facts.step_tokens) / energy_j)
        .add("power_w", energy_j / step_time_s);
  if (line.value_or("slowest_rank", -1) >= 0) {
    const SlowestRank slowest = slowest_of(line, world_.size());
    line.add_text("slowest_host",
                  hosts_.empty() ? "" : hosts_.at(static_cast<std::size_t>(slowest.rank)))
        .add_text("slowest_phase", slowest.phase)
        .add("slowest_excess_s", slowest.excess_s);
  }
  score(facts, line);
  return line;
}

void Metrics::gather_ranks(const StepFacts& facts) {
  if (ranks_every_ <= 0) return;
  // A mean covers all steps since the last lines, because saves and validations are rare.
  rank_sums_.resize(rank_ids_.size());
  rank_num_steps_ += facts.num_steps;
  for (std::size_t i = 0; i < rank_ids_.size(); ++i) {
    const bool is_mean = measures_.declared()[rank_ids_[i]].combine == Combine::mean;
    const double recorded = measures_.recorded(rank_ids_[i]);
    rank_sums_[i] = is_mean ? rank_sums_[i] + recorded : recorded;
  }
  // Reports of metrics_every steps may pass over a multiple of the interval.
  if (facts.step / ranks_every_ == (facts.step - facts.num_steps) / ranks_every_) return;
  own_numbers_.clear();
  for (std::size_t i = 0; i < rank_ids_.size(); ++i) {
    const bool is_mean = measures_.declared()[rank_ids_[i]].combine == Combine::mean;
    own_numbers_.push_back(rank_sums_[i] / (is_mean ? static_cast<double>(rank_num_steps_) : 1));
  }
  rank_sums_.clear();
  rank_num_steps_ = 0;
  rank_numbers_.resize(own_numbers_.size() * static_cast<std::size_t>(world_.size()));
  ranks_step_ = facts.step;
  ranks_work_ = world_.all_gather({.input = own_numbers_.data(),
                                   .output = rank_numbers_.data(),
                                   .count = own_numbers_.size(),
                                   .dtype = DType::f64,
                                   .tag = "numbers of ranks"});
}

void Metrics::write_ranks() {
  if (!ranks_work_) return;
  ranks_work_->wait();
  ranks_work_.reset();
  if (sinks_.empty()) return;
  auto number = rank_numbers_.begin();
  for (int rank = 0; rank < world_.size(); ++rank) {
    MetricsLine line{MetricsLine::Kind::rank};
    line.add("step", ranks_step_).add("rank", static_cast<std::int64_t>(rank));
    if (!hosts_.empty()) line.add_text("host", hosts_.at(static_cast<std::size_t>(rank)));
    for (const Measures::Id id : rank_ids_) {
      const Measure& measure = measures_.declared()[id];
      measure.whole ? line.add(measure.name, static_cast<std::int64_t>(*number))
                    : line.add(measure.name, *number);
      ++number;
    }
    write(line);
  }
}

void Metrics::score(const StepFacts& facts, MetricsLine& line) {
  const double loss = line.value("loss");
  const double grad_norm = line.value("grad_norm");
  const auto loss_z = loss_spikes_.score(loss);
  const auto grad_norm_z = grad_norm_spikes_.score(grad_norm);
  line.add("loss_z", loss_z.value_or(kNone)).add("grad_norm_z", grad_norm_z.value_or(kNone));
  const std::int64_t step = facts.step;
  const bool spike = loss_z.value_or(0) > SpikeDetector::kWarn;
  const bool quiet = warned_step_ > 0 && step - warned_step_ < kQuietSteps;
  if (!spike || quiet || world_.rank() != 0) return;
  warned_step_ = step;
  log::warn(formatted(
      "step {}: the loss jumps to {}, {} robust standard deviations above the last {}; gradient norm {}",
      step, rounded_text(loss, 5), std::lround(*loss_z), SpikeDetector::kWindow,
      rounded_text(grad_norm)));
}

void Metrics::write(const MetricsLine& line) {
  if (sinks_.empty()) return;
  const auto shared = std::make_shared<const MetricsLine>(line);
  for (const std::shared_ptr<MetricsSink>& sink : sinks_) {
    if (files_ == nullptr || !sink->writes_files()) {
      sink->write(line);
      continue;
    }
    auto task = [sink, shared] { sink->write(*shared); };
    const bool is_exact = line.kind != MetricsLine::Kind::rank;
    is_exact ? files_->post(std::move(task)) : files_->post_inexact(std::move(task));
  }
}

void Metrics::pause() {
  for (const auto& sink : sinks_) {
    if (!sink->writes_files()) sink->pause();
  }
}

void Metrics::restore_windows(const std::string& loss, const std::string& grad_norm) {
  loss_spikes_.restore(loss);
  grad_norm_spikes_.restore(grad_norm);
}

}  // namespace trireme::train
