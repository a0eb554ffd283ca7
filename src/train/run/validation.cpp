#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "comm/scalars.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"
#include "core/process/failpoints.hpp"
#include "parallel/collectives.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "train/eval/choices.hpp"
#include "train/run/training_run.hpp"
#include "train/step/microbatches.hpp"

/// Validation on held-out samples.
namespace trireme::train {
namespace {

/// The metric that counts the loss terms, by LossTerm.
constexpr std::array<const char*, 3> kTermNames{"valid_targets", "valid_pairs", "valid_answers"};

struct Validation {
  double loss = 0;            // loss sum / number of terms, over all ranks
  double num_terms = 0;       // number of targets, preference pairs or answers
  std::vector<double> means;  // means of Objective::evaluated() over the same terms
  std::optional<double> bits_per_byte = std::nullopt;  // set if the objective counts text
};

/// The number of micro-batches per pp rank in one pipeline schedule. With more micro-batches,
/// filling and draining the pipeline takes a smaller share of the time.
constexpr std::int64_t kAtOnce = 4;

/// Returns the samples of one data rank in one round. If none are left, returns one sample without
/// targets, because all ranks must take part in collectives.
std::vector<std::int64_t> samples_of(std::int64_t round, std::int64_t micro_batch,
                                     const parallel::Mesh& mesh, std::int64_t total) {
  const std::int64_t first =
      (round * mesh.size(parallel::Axis::dp) + mesh.rank(parallel::Axis::dp)) * micro_batch;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = first; i < std::min(first + micro_batch, total); ++i) indices.push_back(i);
  if (indices.empty()) indices.push_back(data::kNoSample);
  return indices;
}

/// Returns the mean loss over all of `sets`, with each sample once, split over the data ranks.
/// Except for rounding, the result does not depend on the number of ranks. `cancel_before(i, n, k)`
/// runs before every k-th batch i of n of every set; if it returns true (on all ranks), returns
/// nullopt.
/// Collective.
std::optional<Validation> evaluate(
    Step& step, std::span<const data::SampleSet> sets, std::int64_t micro_batch, bool counts_text,
    const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& cancel_before) {
  const parallel::Mesh& mesh = step.parts().mesh;
  objective::Objective& objective = step.parts().objective;
  const at::Device device = step.parts().model.registry().device();
  const auto num_means = static_cast<std::int64_t>(objective.evaluated().size());
  const std::int64_t num_sums = 1 + num_means + (counts_text ? 2 : 0);
  at::Tensor sums =  // the values of Objective::evaluate(), number of terms
      at::zeros({num_sums + 1}, at::TensorOptions().dtype(at::kDouble).device(device));
  const bool counts = mesh.rank(parallel::Axis::cp) == 0 && mesh.rank(parallel::Axis::pp) == 0;
  const std::int64_t at_once =
      mesh.size(parallel::Axis::pp) == 1 ? 1 : kAtOnce * mesh.size(parallel::Axis::pp);
  /// Calls `use` with the micro-batches of each round, and whether the round is the last of all.
  const auto for_rounds = [&](const auto& use) {
    for (const data::SampleSet& samples : sets) {
      const data::SampleOrder in_file_order(samples.size(), 0, /*shuffle=*/false);
      const auto total = static_cast<std::int64_t>(samples.size());
      const std::int64_t stride = micro_batch * mesh.size(parallel::Axis::dp);
      const std::int64_t rounds = (total + stride - 1) / stride;
      for (std::int64_t round = 0; round < rounds; round += at_once) {
        failpoint("train.validate");
        if (cancel_before(round, rounds, at_once)) return false;
        std::vector<data::Batch> batches;
        std::vector<parallel::Microbatch> micro_batches;
        for (std::int64_t i = round; i < std::min(round + at_once, rounds); ++i) {
          batches.push_back(
              samples.make_batch(samples_of(i, micro_batch, mesh, total), in_file_order));
          micro_batches.push_back(parallel::shard_sequence(
              to_microbatch(batches.back(), device, 0, /*training=*/false), mesh));
        }
        use(batches, micro_batches, round + at_once >= rounds && &samples == &sets.back());
      }
    }
    return true;
  };
  if (objective.surveys() && !for_rounds([&](const auto&, const auto& micro_batches, bool last) {
        objective.survey(micro_batches, last);
      }))
    return std::nullopt;
  if (!for_rounds([&](const auto& batches, const auto& micro_batches, bool /*last*/) {
        for (const data::Batch& batch : batches)
          if (counts) sums[num_sums].add_(static_cast<double>(num_terms(batch, objective.term())));
        step.forward(micro_batches, [&](std::size_t i, const at::Tensor& hidden) {
          sums.narrow(0, 0, num_sums).add_(objective.evaluate(micro_batches[i], hidden));
        });
      }))
    return std::nullopt;
  for (const parallel::Axis axis : {parallel::Axis::data, parallel::Axis::pp})
    if (mesh.size(axis) > 1)
      parallel::all_reduce(mesh.group(axis), sums, comm::ReduceOp::sum, "validation")->wait();
  const at::Tensor all = sums.to(at::kCPU);
  const double* values = all.const_data_ptr<double>();
  Validation result{values[0] / values[num_sums], values[num_sums], {}};
  for (std::int64_t i = 1; i <= num_means; ++i)
    result.means.push_back(values[i] / values[num_sums]);
  if (counts_text && values[num_sums - 1] > 0)
    result.bits_per_byte = bits_per_byte(values[num_sums - 2], values[num_sums - 1]);
  return result;
}

}  // namespace

namespace {

/// Exchanges the weights and their EMA for its lifetime, if train.eval_ema is set. If an error ends
/// the validation, the weights stay exchanged, because the run ends, too.
class AveragedWeights {
 public:
  explicit AveragedWeights(TrainingRun& run)
      : average_(run.config().train.eval_ema ? run.model.average.get() : nullptr) {
    if (average_ == nullptr) return;
    run.services.saver.wait_copied();  // the writer reads both
    average_->swap();
  }

  /// Restores the weights. Collective under ZeRO.
  void restore() {
    if (average_ != nullptr) average_->swap();
    average_ = nullptr;
  }

  [[nodiscard]] const char* text() const { return average_ != nullptr ? " of the EMA" : ""; }

 private:
  optim::WeightAverage* average_;
};

/// Writes the result of a validation and gives its loss to the services that use it.
void report_validation(TrainingRun& run, const MetricsLine& line, double loss,
                       const std::string& text, double seconds) {
  TrainerServices& services = run.services;
  services.metrics.write(line);
  // Ranks of tp may differ in the last bit, but all ranks must make the same decision and save the
  // same value.
  const double shared_loss = comm::all_reduce_value(
      run.world(), run.world().rank() == 0 ? loss : 0.0, comm::ReduceOp::sum, "validation loss");
  run.valid_loss = {run.progress.step, shared_loss};
  services.early_stop.add(run.progress.step, shared_loss);
  services.metrics.pause();
  log::info(formatted("step {}  {}", run.progress.step, text));
  services.time_limit.validation_took(seconds);
}

/// Reports a validation with generated answers.
void report_generated(TrainingRun& run, const GeneratedValidation& validation, double seconds) {
  MetricsLine line{MetricsLine::Kind::validation, {}};
  line.add("eval_step", run.progress.step).add("valid_loss", validation.loss);
  std::string text;
  for (const auto& [name, value] : validation.metrics) {
    line.add(name, value);
    text += formatted("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  line.add("time", unix_time_s()).add("validation_s", seconds);
  report_validation(run, line, validation.loss, text, seconds);
}

/// Generates the texts of metrics.samples and writes them to the sinks.
void report_samples(TrainingRun& run) {
  if (run.sample_texts.empty()) return;
  const NamedRange range(Phase::other, "samples");
  const std::vector<SampleText> texts = run.sample_texts.generate(run.request, run.model);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    MetricsLine line{MetricsLine::Kind::sample};
    line.add("sample_step", run.progress.step).add("sample", static_cast<std::int64_t>(i));
    line.add_text("prompt", texts[i].prompt).add_text("text", texts[i].text);
    run.services.metrics.write(line.add("time", unix_time_s()));
  }
}

}  // namespace

bool validate(TrainingRun& run) {
  run.enter("validate");
  const NamedRange range(Phase::other, "validation");
  run.model.step.average_replicas();
  const MeasureTime counted(run.measures.all, run.measures.validation_s);
  const Timer timer;
  AveragedWeights weights(run);
  const std::string of_what = weights.text();
  const auto generated = run.model.samples->validate();
  const auto validation = generated
                              ? std::nullopt
                              : evaluate(run.model.step, run.model.samples->validation(),
                                         run.config().train.micro_batch, run.model.counts_text,
                                         [&](std::int64_t i, std::int64_t n, std::int64_t stride) {
                                           return run.services.cancel_vote.before(i, n, stride);
                                         });
  const bool cancelled = generated ? generated->cancelled : !validation;
  if (!cancelled) report_samples(run);
  weights.restore();
  if (cancelled) return false;
  if (generated) {
    report_generated(run, *generated, timer.seconds());
    return true;
  }
  MetricsLine line{MetricsLine::Kind::validation, {}};
  const objective::Objective& objective = *run.model.objective;
  line.add("eval_step", run.progress.step)
      .add("valid_loss", validation->loss)
      .add(kTermNames[static_cast<std::size_t>(objective.term())],
           static_cast<std::int64_t>(validation->num_terms));
  if (validation->bits_per_byte) line.add("valid_bpb", *validation->bits_per_byte);
  line.add("time", unix_time_s()).add("validation_s", timer.seconds());
  for (std::size_t i = 0; i < validation->means.size(); ++i)
    line.add(cat("valid_", objective.evaluated()[i]), validation->means[i]);
  report_validation(run, line, validation->loss,
                    formatted("validation loss{} {}", of_what, validation->loss), timer.seconds());
  return true;
}

}  // namespace trireme::train
