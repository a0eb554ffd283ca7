#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/format/state.hpp"
#include "data/order/stream.hpp"
#include "optim/loss_scaler.hpp"

namespace trireme::train {

/// Position of a run: a few integers, valid for any layout.
struct Progress {
  std::int64_t step = 0;         // completed steps
  std::int64_t update = 0;       // completed steps that were not skipped
  std::int64_t next_sample = 0;  // global index of the next sample
  std::int64_t tokens = 0;       // positions that all ranks trained on
};

/// The values of a run's checkpoint (StateDict::values): everything that a resume needs except
/// tensors and files. fields() and groups() hold the only list of their keys. Keys and texts are
/// part of the checkpoint format: a change makes older checkpoints unreadable. A missing value is
/// nullopt: older versions wrote fewer values, and checkpoints of weights only have just `model`.
struct RunValues {
  using Texts = std::map<std::string, std::string>;

  std::optional<std::string> task;     // name of the task that trained
  std::optional<std::int64_t> step;    // see Progress, for this and the next three
  std::optional<std::int64_t> update;  // set for a training state, not for weights only
  std::optional<std::int64_t> next_sample;
  std::optional<std::int64_t> tokens;
  std::optional<double> loss_scale;        // see LossScaler
  std::optional<std::int64_t> good_steps;  // see LossScaler
  data::SampleStream::State stream;        // state of the data before next_sample
  std::optional<std::string> plan_hash;    // SampleStream::plan_hash
  std::optional<std::int64_t> data_began;  // step at which the data was at sample 0; absent: 0
  std::optional<std::string> schedule;     // parallel.schedule auto: the pipeline schedule found
  std::optional<std::string> chain;        // StepHashLog::value; absent in version 0.1
  std::optional<std::int64_t> skipped_in_a_row;
  std::optional<std::string> fp8_history;       // Fp8Scaling::history
  std::optional<std::string> loss_spikes;       // SpikeDetector::text
  std::optional<std::string> grad_norm_spikes;  // SpikeDetector::text
  std::optional<double> valid_loss;             // set if the run was validated at this step
  std::optional<std::int64_t> early_stop_without_lower;  // see EarlyStop, for this and the next two
  std::optional<std::int64_t> early_stop_best_step;
  std::optional<double> early_stop_best_loss;

  Texts config;          // the resolved configuration by key: "optim.lr" -> "0.0003"
  Texts fingerprint;     // Fingerprint, by its names: "threads" -> "2"
  Texts weights_sha256;  // hash_tensors of weights: "init" (the start), "base", "reference", ...
  Texts samples;         // state of a SampleSource that makes samples, by its own names
  Texts model;  // all other values, by their whole keys: model.*, lora.*, chat.template, ...

  /// Calls visit(key, member) for every single value.
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("task", self.task);
    visit("step", self.step);
    visit("update", self.update);
    visit("data.next_sample", self.next_sample);
    visit("tokens", self.tokens);
    visit("scaler.scale", self.loss_scale);
    visit("scaler.good_steps", self.good_steps);
    visit("data.content_hash", self.stream.content_hash);
    visit("data.plan", self.stream.plan);
    visit("data.plan_hash", self.plan_hash);
    visit("data.began_at_step", self.data_began);
    visit("schedule", self.schedule);
    visit("chain", self.chain);
    visit("skipped_in_a_row", self.skipped_in_a_row);
    visit("fp8.amax_history", self.fp8_history);
    visit("spikes.loss", self.loss_spikes);
    visit("spikes.grad_norm", self.grad_norm_spikes);
    visit(checkpoint::kValidLossValue, self.valid_loss);
    visit("early_stop.without_lower", self.early_stop_without_lower);
    visit("early_stop.best_step", self.early_stop_best_step);
    visit("early_stop.best_loss", self.early_stop_best_loss);
  }

  /// Calls visit(prefix, suffix, member) for every group: its keys are prefix + name + suffix.
  template <class Self, class Visit>
  static void groups(Self& self, Visit&& visit) {
    visit("config.", "", self.config);
    visit("fingerprint.", "", self.fingerprint);
    visit("", ".weights_sha256", self.weights_sha256);
    visit("samples.", "", self.samples);
    visit("", "", self.model);  // the last one, which takes every key
  }

  /// Throws Error(data) for a number that cannot be read.
  static RunValues from_values(const Texts& values);
  [[nodiscard]] Texts to_values() const;

  /// Returns true if the checkpoint has a training state, false for weights only.
  [[nodiscard]] bool is_training_state() const { return update.has_value(); }

  /// Returns the value of a configuration key ("optim.lr"); nullopt if the checkpoint has none.
  [[nodiscard]] std::optional<std::string> configured(const std::string& key) const;
};

/// Returns a value that must exist and lie in [least, most]. Throws Error(data) otherwise.
std::int64_t number_in(const RunValues& values, std::optional<std::int64_t> RunValues::*member,
                       std::int64_t least, std::int64_t most);

void put_progress(RunValues& values, const Progress& progress, const optim::LossScaler& scaler);

/// Returns the progress of a checkpoint of `step`, and restores a dynamic `scaler`. Throws
/// Error(data) for a value that is missing or out of range.
Progress load_progress(const RunValues& values, std::int64_t step, optim::LossScaler& scaler);

/// Returns only next_sample of the progress. Throws the errors of load_progress.
std::int64_t saved_next_sample(const RunValues& values);

}  // namespace trireme::train
