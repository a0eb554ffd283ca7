#include "train/task/rl_source.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"
#include "core/timer.hpp"
#include "device/precision.hpp"
#include "device/torch_errors.hpp"
#include "objective/policy.hpp"
#include "train/rl/answers.hpp"
#include "train/rl/prompts.hpp"
#include "train/rl/rl_measures.hpp"
#include "train/rl/rollout.hpp"
#include "train/rl/whole_model.hpp"
#include "train/step/microbatches.hpp"

namespace trireme::train {
namespace {

class RolloutSource final : public SampleSource {
 public:
  RolloutSource(const RlConfig& config, const SourceContext& context)
      : config_(config),
        context_(context),
        prompts_(context.stream),
        tokens_(answer_tokens(context.stream.first_set(), context.model.config().vocab_size)),
        rewards_(comm::all_or_none(context.world,
                                   [&] {
                                     return RewardTerms({config, tokens_,
                                                         context.config.train.seq_len,
                                                         context.model.registry().device(),
                                                         context.config.train.precision == "fp64"});
                                   })),
        measures_(config, context.measures) {
    config_.max_total_tokens = std::min(config_.max_total_tokens, context.config.train.seq_len);
    if (config_.uses_tools())
      agent_ = comm::all_or_none(context.world,
                                 [&] { return std::make_unique<Agent>(config_, tokens_); });
    const std::int64_t prompts = config.prompts_of_step(context.config.train.global_batch);
    const std::int64_t at_once =
        context.config.train.micro_batch * context.mesh.size(parallel::Axis::dp);
    if (prompts % at_once != 0) {
      fail(ErrorKind::usage,
           "rl.mini_batch is {}. It must be a multiple of {} (train.micro_batch * data-parallel "
           "ranks).",
           prompts, at_once);
    }
    if ((config.top_p < 1 || config.top_k > 0) && context.world.rank() == 0) {
      log::warn(formatted(
          "rl.top_p = {} and rl.top_k = {} cut tokens from the distribution that the answers are "
          "sampled from. Log-probabilities are those of the whole distribution, so the ratio is "
          "biased by the probability that was cut",
          config.top_p, config.top_k));
    }
  }

  void restore(const RunValues& saved, const std::string& checkpoint) override {
    next_sample_ = saved_next_sample(saved);
    step_ = saved.step.value_or(0);
    context_.stream.check_state(saved.stream, next_sample_, checkpoint);
  }

  void put_state(std::int64_t next_sample, RunValues& values) const override {
    values.stream = context_.stream.state(next_sample);
    values.plan_hash = context_.stream.plan_hash();
  }

  /// A rollout serves rl.updates passes over its mini-batches. The first step generates it. A run
  /// that resumes at a later step of the rollout reads its file.
  UpdateSamples next() override {
    const at::NoGradGuard no_grad;
    const std::int64_t part = step_++ % steps_of_rollout();
    if (part == 0) {
      begin_rollout();
    } else if (rollouts_.empty()) {
      resume_rollout(part);
    }
    measures_.record(context_.world, rollouts_, advantages_, rollout_s_);
    const auto size = static_cast<std::size_t>(prompts_of_mini_batch() * config_.group);
    const auto mini = static_cast<std::size_t>(part % mini_batches());
    const std::span<const Rollout> used = std::span(rollouts_).subspan(mini * size, size);
    UpdateSamples samples;
    samples.batches = make_batches(used, totals_of(used));
    if (part + 1 == steps_of_rollout()) next_sample_ += context_.config.train.global_batch;
    samples.next_sample = next_sample_;
    return samples;
  }

  void update_took(double seconds) override { measures_.record_update(seconds); }

  [[nodiscard]] std::string origin(std::int64_t first, std::int64_t end) const override {
    if (!config_.replay.empty()) return config_.replay;
    std::set<std::string> sets;
    for (std::int64_t i = std::max<std::int64_t>(first, 0); i < end; ++i)
      sets.insert(context_.stream.locate(i).samples->set().directory().string());
    return joined(sets, ", ");
  }

  [[nodiscard]] std::span<const data::SampleSet> validation() const override {
    return context_.validation;
  }

 private:
  [[nodiscard]] std::int64_t mini_batches() const {
    const std::int64_t prompts = context_.config.train.global_batch;
    return prompts / config_.prompts_of_step(prompts);
  }

  [[nodiscard]] std::int64_t steps_of_rollout() const { return config_.updates * mini_batches(); }

  /// Returns the prompts of a mini-batch that belong to one rank.
  [[nodiscard]] std::int64_t prompts_of_mini_batch() const {
    return context_.config.train.global_batch / mini_batches() /
           context_.mesh.size(parallel::Axis::dp);
  }

  /// Returns the first prompt of this rank in a mini-batch. A mini-batch consists of the same prompts
  /// on every number of ranks.
  [[nodiscard]] std::int64_t first_prompt(std::int64_t mini) const {
    return (mini * context_.mesh.size(parallel::Axis::dp) +
            context_.mesh.rank(parallel::Axis::dp)) *
           prompts_of_mini_batch();
  }

  void begin_rollout() {
    const Timer timer;
    comm::Communicator& world = context_.world;
    copy_weights();
    rollouts_ = comm::all_or_none(world, [&] {
      return device::with_torch_errors(
          [&] { return config_.replay.empty() ? generate() : read(config_.replay, 0); });
    });
    rollout_s_ = timer.seconds();
    failpoint("rl.rollout");
    comm::all_or_none(world, [&] {
      if (config_.replay.empty()) rewards_.score(rollouts_);
      device::with_torch_errors([&] { add_logprobs(rollouts_); });
      set_old_logprobs(config_, rollouts_);
      if (config_.loss.kl == "reward" && config_.has_reference())
        penalize_rewards(config_, rollouts_);
    });
    failpoint("rl.reward");
    advantages_ = set_advantages(config_, all_rewards(rollouts_), rollouts_);
    publish();
  }

  /// Returns the model with all weights on this rank.
  [[nodiscard]] model::Transformer& whole_model() const {
    return whole_ ? whole_->transformer() : context_.model;
  }

  /// With ZeRO-3, copies the weights of all ranks into a model on each rank. Collective.
  void copy_weights() {
    if (context_.config.parallel.zero < 3) return;
    if (!whole_) {
      const RunConfig& config = context_.config;
      whole_ = std::make_unique<WholeModel>(
          WholeModel::Setup{config.model, ops::path_of(config.train.fused_ops), config.lora,
                            device::precision_dtypes(config.train.precision).compute,
                            context_.model.registry().device()});
    }
    whole_->copy_weights(context_.model.registry());
  }

  void resume_rollout(std::int64_t part) {
    rollouts_ = comm::all_or_none(context_.world,
                                  [&] { return read(context_.run_directory / "rollouts", part); });
    advantages_ = set_advantages(config_, all_rewards(rollouts_), rollouts_);
  }

  /// Reads the answers of this rank: whole groups in the order of the prompts. `part` is the number
  /// of steps since the rollout began; if it is not 0, the file is that of this run.
  [[nodiscard]] std::vector<Rollout> read(const std::filesystem::path& place,
                                          std::int64_t part) const {
    std::vector<Rollout> rollouts;
    for (std::int64_t mini = 0; mini < mini_batches(); ++mini) {
      const std::vector<Rollout> some =
          read_replay(place, {.step = step_ - part,
                              .rollout = (step_ - 1) / steps_of_rollout(),
                              .is_saved = part > 0,
                              .answers = context_.config.train.global_batch * config_.group,
                              .first = first_prompt(mini) * config_.group,
                              .count = prompts_of_mini_batch() * config_.group,
                              .group = config_.group,
                              .vocab_size = tokens_.size});
      rollouts.insert(rollouts.end(), some.begin(), some.end());
    }
    return rollouts;
  }

  [[nodiscard]] std::vector<Rollout> generate() const {
    RlPromptReader::Limits limits{config_.max_new_tokens, context_.config.train.seq_len};
    if (agent_ && config_.max_total_tokens < limits.max_tokens)
      limits = {config_.max_new_tokens, config_.max_total_tokens, "rl.max_total_tokens"};
    std::vector<RlPrompt> prompts;
    for (std::int64_t mini = 0; mini < mini_batches(); ++mini) {
      for (std::int64_t i = 0; i < prompts_of_mini_batch(); ++i)
        prompts.push_back(prompts_.at(next_sample_ + first_prompt(mini) + i, limits));
    }
    return generate_answers(
        {whole_model(), tokens_, config_, agent_.get(), context_.config.train.seed,
         /*weights_version=*/step_ - 1},
        prompts);
  }

  /// Sets the log-probabilities of the reference and of the current weights, if they are needed.
  void add_logprobs(std::vector<Rollout>& rollouts) const {
    for (Rollout& one : rollouts) one.old_logprobs = one.rollout_logprobs;
    if (!config_.recomputes() && !config_.has_reference()) return;
    RlConfig plain = config_;
    plain.correction = "none";
    const ops::Path path = ops::path_of(context_.config.train.fused_ops);
    const auto rows = static_cast<std::size_t>(context_.config.train.micro_batch * config_.group);
    for (std::size_t first = 0; first < rollouts.size(); first += rows) {
      const std::span<Rollout> some = std::span(rollouts).subspan(first, rows);
      UpdateTotals totals{.answers = 1, .trained_tokens = 1, .targets = 1, .batches = 1};
      for (const Rollout& one : some)
        totals.row_tokens =
            std::max(totals.row_tokens, std::ssize(one.prompt) + std::ssize(one.ids));
      model::Transformer& model = whole_model();
      parallel::Microbatch batch =
          to_microbatch(make_policy_batch(plain, some, totals, pad_id()), model.registry().device(),
                        step_, /*training=*/false);
      const objective::Head own = objective::first_classes(
          objective::head_of(model.registry(), model.head_weight(), {}, path), tokens_.size);
      const double temperature = config_.loss.temperature;
      if (config_.recomputes()) {
        spread(objective::policy_logprobs(batch, model.hidden(batch), own, temperature), some,
               &Rollout::current_logprobs);
      }
      if (!config_.has_reference()) continue;
      batch.adapters = false;
      FrozenModel* const frozen = context_.frozen;
      const at::Tensor hidden = frozen != nullptr ? frozen->hidden(batch) : model.hidden(batch);
      const objective::Head reference =
          frozen != nullptr ? objective::first_classes(frozen->head(path), tokens_.size) : own;
      spread(objective::policy_logprobs(batch, hidden, reference, temperature), some,
             &Rollout::ref_logprobs);
    }
  }

  /// Distributes the values of all targets to their tokens. Other tokens get 0.
  static void spread(const at::Tensor& values, std::span<Rollout> rollouts,
                     std::vector<double> Rollout::*member) {
    const double* next = values.const_data_ptr<double>();
    for (Rollout& one : rollouts) {
      (one.*member).assign(one.ids.size(), 0);
      for (std::size_t i = 0; i < one.ids.size(); ++i)
        if (one.mask[i]) (one.*member)[i] = *next++;
    }
  }

  [[nodiscard]] std::vector<double> all_rewards(const std::vector<Rollout>& rollouts) const {
    std::vector<double> mine;
    for (const Rollout& one : rollouts) mine.push_back(one.reward);
    std::vector<double> all(mine.size() * static_cast<std::size_t>(context_.world.size()));
    context_.world
        .all_gather({.input = mine.data(),
                     .output = all.data(),
                     .count = mine.size(),
                     .dtype = DType::f64,
                     .tag = "rewards"})
        ->wait();
    return all;
  }

  /// Writes RUN/rollouts/step-NNNNNNNNN.jsonl in the order of the prompts. Collective.
  void publish() const {
    const auto size = static_cast<std::size_t>(prompts_of_mini_batch() * config_.group);
    std::string all;
    for (std::size_t first = 0; first < rollouts_.size(); first += size) {
      std::string lines;
      for (const Rollout& one : std::span(rollouts_).subspan(first, size))
        lines += rollout_line(one);
      all += joined(comm::gather_texts(context_.world, lines), "");
    }
    comm::all_or_none(context_.world, [&] {
      if (context_.world.rank() != 0) return;
      const std::filesystem::path directory = context_.run_directory / "rollouts";
      std::filesystem::create_directories(directory);
      write_file_atomic(directory / rollout_file_name(step_), all);
      const std::int64_t old = step_ - config_.keep_rollouts * steps_of_rollout();
      if (config_.keep_rollouts > 0 && old > 0)
        std::filesystem::remove(directory / rollout_file_name(old));
    });
    failpoint("rl.published");
  }

  /// Collective.
  [[nodiscard]] UpdateTotals totals_of(std::span<const Rollout> rollouts) const {
    const TrainConfig& train = context_.config.train;
    const std::int64_t prompts = config_.prompts_of_step(train.global_batch);
    UpdateTotals totals{.answers = prompts * config_.group, .batches = prompts / train.micro_batch};
    for (const Rollout& one : rollouts) {
      const bool is_masked = one.truncated && config_.truncated == "mask";
      totals.targets += one.num_trained();
      totals.trained_tokens += is_masked ? 0 : one.num_trained();
      totals.row_tokens = std::max(totals.row_tokens, std::ssize(one.prompt) + std::ssize(one.ids));
    }
    const auto reduce = [&](std::int64_t& value, comm::ReduceOp op, const char* tag) {
      value = comm::all_reduce_value(context_.world, value, op, tag);
    };
    reduce(totals.targets, comm::ReduceOp::sum, "targets");
    reduce(totals.trained_tokens, comm::ReduceOp::sum, "trained tokens");
    reduce(totals.row_tokens, comm::ReduceOp::max, "row tokens");
    if (totals.targets == 0) {
      fail(ErrorKind::data,
           "{}: no answer of step {} has a token to train. A mask needs at least one 1.",
           config_.replay, step_);
    }
    return totals;
  }

  [[nodiscard]] std::vector<data::Batch> make_batches(std::span<const Rollout> rollouts,
                                                      const UpdateTotals& totals) const {
    std::vector<data::Batch> batches;
    const auto rows = static_cast<std::size_t>(context_.config.train.micro_batch * config_.group);
    for (std::size_t first = 0; first < rollouts.size(); first += rows)
      batches.push_back(
          make_policy_batch(config_, rollouts.subspan(first, rows), totals, pad_id()));
    return batches;
  }

  [[nodiscard]] std::int64_t pad_id() const {
    return context_.stream.first_set().pad_id().value_or(0);
  }

  RlConfig config_;
  SourceContext context_;
  RlPromptReader prompts_;
  AnswerTokens tokens_;
  RewardTerms rewards_;
  std::unique_ptr<Agent> agent_;  // null: answers call no tools
  RlMeasures measures_;
  std::unique_ptr<WholeModel> whole_;  // null: each rank has all weights
  std::int64_t next_sample_ = 0;
  std::int64_t step_ = 0;          // number of the last update that next() returned, from 1
  std::vector<Rollout> rollouts_;  // answers of this rank, mini-batch by mini-batch
  AdvantageTotals advantages_;
  double rollout_s_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> make_rollout_source(const RlConfig& config,
                                                  const SourceContext& context) {
  return std::make_unique<RolloutSource>(config, context);
}

}  // namespace trireme::train
