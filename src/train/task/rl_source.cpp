#include "train/task/rl_source.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"
#include "core/timer.hpp"
#include "device/torch_errors.hpp"
#include "train/rl/rl_measures.hpp"
#include "train/rl/rollout_progress.hpp"
#include "train/rl/token_advantages.hpp"
#include "train/task/answer_logprobs.hpp"
#include "train/task/critic.hpp"
#include "train/task/kept_rollouts.hpp"
#include "train/task/rollout_generator.hpp"
#include "train/task/rollout_ranks.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

/// Returns the keys with rl.max_total_tokens limited to train.seq_len.
RlConfig limited(RlConfig config, std::int64_t seq_len) {
  config.max_total_tokens = std::min(config.max_total_tokens, seq_len);
  return config;
}

class RolloutSource final : public SampleSource {
 public:
  RolloutSource(const RlConfig& config, const SourceContext& context)
      : config_(limited(config, context.config.train.seq_len)),
        context_(context),
        ranks_(context.world, context.mesh),
        tokens_(answer_tokens(context.stream.first_set(), context.model.config().vocab_size)),
        generator_(config_, context_, ranks_, tokens_),
        logprobs_(config_, context_, ranks_, tokens_.size),
        measures_(config, context.measures),
        kept_(context.run_directory, steps_of_rollout(), config.keep_rollouts) {
    const std::int64_t prompts = config.prompts_of_step(context.config.train.global_batch);
    const std::int64_t at_once = context.config.train.micro_batch * ranks_.data_ranks();
    if (prompts % at_once != 0) {
      fail(ErrorKind::usage,
           "rl.mini_batch is {}. It must be a multiple of {} (train.micro_batch * data-parallel "
           "ranks).",
           prompts, at_once);
    }
    check_program_timeout();
    const std::string cuts = config.cuts();
    if (!cuts.empty() && context.world.rank() == 0) {
      log::warn(formatted(
          "{} removes tokens from the distribution that the answers are sampled from. "
          "Log-probabilities are those of the whole distribution, so the ratio is biased by the "
          "probability of the removed tokens",
          cuts));
    }
    if (config.corrects_twice() && context.world.rank() == 0)
      log::warn(formatted(
          "rl.correction {} with rl.old = rollout: the ratio of {} already has the difference "
          "between generation and training, so its tokens are weighted with it twice. Use rl.old = "
          "recompute",
          config.correction, config.loss.objective));
  }

  void restore(const RunValues& saved, const std::string& checkpoint) override {
    next_sample_ = saved_next_sample(saved);
    step_ = saved.step.value_or(0);
    context_.stream.check_state(saved.stream, next_sample_, checkpoint);
    progress_.restore(step_, saved.samples);
    const std::int64_t unfinished = progress_.unfinished(step_, steps_of_rollout());
    if (unfinished > 0 && context_.world.rank() == 0) kept_.take(checkpoint, unfinished);
  }

  void start_at(std::int64_t step) override { step_ = step; }

  void cancel_when(std::function<bool()> is_requested) override {
    is_stopped_ = std::move(is_requested);
  }

  void put_state(std::int64_t next_sample, RunValues& values) override {
    saved_rollout_ = progress_.unfinished(values.step.value_or(0), steps_of_rollout());
    values.stream = context_.stream.state(next_sample);
    values.plan_hash = context_.stream.plan_hash();
    progress_.put(values.step.value_or(0), values.samples);
  }

  [[nodiscard]] const char* phase() const override { return "rollout"; }

  /// A rollout serves rl.updates passes over its mini-batches, or fewer if it ends early (ppo). The
  /// first step generates it. A run that resumes at a later step of the rollout reads its file.
  UpdateSamples next() override {
    const at::NoGradGuard no_grad;
    const std::int64_t first_sample = next_sample_;
    ++step_;
    std::int64_t part = progress_.part(step_);
    bool begins = part == 0 || part >= steps_of_rollout();
    if (!begins) {
      if (rollouts_.empty()) resume_rollout(part);
      begins = ends_early(part);
      if (begins) next_sample_ += context_.config.train.global_batch;
    }
    if (begins) {
      part = 0;
      if (!begin_rollout()) {
        --step_;
        next_sample_ = first_sample;
        return {.cancelled = true};
      }
    }
    const bool counts = ranks_.is_first();
    measures_.record(context_.world,
                     counts ? std::span<const Rollout>(rollouts_) : std::span<const Rollout>(),
                     counts ? advantages_ : AdvantageTotals{}, generator_.seconds());
    const std::span<const Rollout> used = mini_batch_of(part);
    const UpdateTotals totals = sum_totals(ranks_, config_, context_.config, step_, used);
    UpdateSamples samples;
    samples.batches = make_batches(used, totals);
    if (context_.critic != nullptr) context_.critic->set_batches(samples.batches, totals.targets);
    if (part + 1 == steps_of_rollout()) next_sample_ += context_.config.train.global_batch;
    samples.next_sample = next_sample_;
    return samples;
  }

  /// Updates the critic with the answers of the policy's update. A skipped update changes neither.
  void updated(double seconds, std::int64_t update) override {
    const Timer timer;
    if (context_.critic != nullptr && update > 0)
      record_value_loss(context_.critic->update(step_, update));
    measures_.record_update(seconds + timer.seconds());
  }

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

  std::optional<GeneratedValidation> validate() override {
    const at::NoGradGuard no_grad;
    return generator_.validate(step_, is_stopped_);
  }

 private:
  /// On several ranks, a program that hangs must be found before the ranks that wait for it.
  void check_program_timeout() const {
    const bool has_program = !config_.reward_command.empty() || !config_.tool_command.empty();
    const double most = context_.config.train.comm_timeout_s;
    if (!has_program || context_.world.size() == 1 || config_.reward_timeout_s < most) return;
    fail(ErrorKind::usage,
         "rl.reward_timeout_s is {}. On several ranks it must be less than train.comm_timeout_s = "
         "{}, because other ranks wait for the answers of the program. Raise train.comm_timeout_s.",
         config_.reward_timeout_s, most);
  }

  [[nodiscard]] std::int64_t mini_batches() const {
    const std::int64_t prompts = context_.config.train.global_batch;
    return prompts / config_.prompts_of_step(prompts);
  }

  [[nodiscard]] std::int64_t steps_of_rollout() const { return config_.updates * mini_batches(); }

  /// Returns the prompts of a mini-batch that belong to one group of ranks.
  [[nodiscard]] std::int64_t prompts_of_mini_batch() const {
    return context_.config.train.global_batch / mini_batches() / ranks_.data_ranks();
  }

  /// Returns the first prompt of this group in a mini-batch. A mini-batch consists of the same
  /// prompts on every number of ranks.
  [[nodiscard]] std::int64_t first_prompt(std::int64_t mini) const {
    return (mini * ranks_.data_ranks() + ranks_.data_rank()) * prompts_of_mini_batch();
  }

  [[nodiscard]] std::span<Rollout> mini_batch_of(std::int64_t part) {
    const auto size = static_cast<std::size_t>(prompts_of_mini_batch() * config_.group);
    const auto mini = static_cast<std::size_t>(part % mini_batches());
    return std::span(rollouts_).subspan(mini * size, size);
  }

  /// Returns false if a stop request cancelled the rollout.
  bool begin_rollout() {
    std::optional<std::vector<Rollout>> rollouts =
        config_.replay.empty()
            ? generator_.generate(prompts_of_group(), step_, is_stopped_)
            : comm::all_or_none(context_.world, [&] { return read(config_.replay, 0); });
    if (!rollouts) return false;
    progress_.begin(step_);
    rollouts_ = std::move(*rollouts);
    device::with_torch_errors([&] { logprobs_.add(rollouts_, step_); });
    set_checked_old_logprobs();
    if (config_.loss.kl == "reward" && config_.has_reference())
      penalize_rewards(config_, rollouts_);
    failpoint("rl.reward");
    set_all_advantages(config_.has_tracker() ? std::optional(next_baseline()) : std::nullopt);
    publish();
    return true;
  }

  /// Throws RolloutGapError on one rank if a rank has a difference above rl.max_gap. Collective.
  void set_checked_old_logprobs() {
    try {
      comm::all_or_none(context_.world, [&] { set_old_logprobs(config_, rollouts_); });
    } catch (const comm::AgreedError& error) {
      throw RolloutGapError(error);
    }
  }

  /// Returns the baseline of spo and adds the rollout to the tracker. Collective.
  double next_baseline() {
    const double baseline = progress_.tracker().baseline();
    std::array<double, 4> sums{};  // rewards, answers, log-probabilities, tokens
    for (const Rollout& one : rollouts_) {
      const std::vector<double>& logprobs =
          one.current_logprobs.empty() ? one.rollout_logprobs : one.current_logprobs;
      sums[0] += one.reward;
      sums[1] += 1;
      for (std::size_t i = 0; i < one.ids.size(); ++i)
        if (one.mask[i]) sums[2] += logprobs[i];
      sums[3] += static_cast<double>(one.num_trained());
    }
    for (double& sum : sums) sum = ranks_.sum_of_groups(sum, "spo");
    if (sums[1] > 0 && sums[3] > 0) progress_.tracker().add(sums[0] / sums[1], sums[2] / sums[3]);
    return baseline;
  }

  /// Sets the advantages of answers with rewards (and values). Collective.
  void set_all_advantages(std::optional<double> baseline) {
    advantages_ = set_advantages(config_, ranks_.gather_rewards(rollouts_), baseline, rollouts_);
    if (!config_.has_critic()) return;
    estimate_advantages(config_, rollouts_);
    const auto mean_of = [&](double center, int power) {
      const TokenSum own = sum_advantages(config_, rollouts_, center, power);
      const double count = ranks_.sum_of_groups(own.count, "advantages");
      return ranks_.sum_of_groups(own.sum, "advantages") / std::max(count, 1.0);
    };
    const double mean = mean_of(0, 1);
    whiten(rollouts_, mean, mean_of(mean, 2));
  }

  /// Returns true if the policy has moved so far from the rollout that its updates end (ppo).
  /// Collective.
  [[nodiscard]] bool ends_early(std::int64_t part) {
    if (!config_.has_critic() || config_.ppo.early_stop_kl <= 0) return false;
    TokenSum total = device::with_torch_errors(
        [&] { return logprobs_.squared_changes(mini_batch_of(part), step_); });
    total.sum = ranks_.sum_of_groups(total.sum, "approx_kl");
    total.count = ranks_.sum_of_groups(total.count, "approx_kl");
    return total.sum > config_.ppo.early_stop_kl * total.count;
  }

  /// Records the value loss on one rank of each group; each rank of cp has a part of the loss.
  void record_value_loss(const UpdateResult& result) {
    const parallel::Mesh& mesh = context_.mesh;
    const bool has_part = mesh.rank(parallel::Axis::tp) == 0 && mesh.rank(parallel::Axis::pp) == 0;
    measures_.record_value_loss(has_part ? result.loss_sum : 0,
                                ranks_.is_first() ? static_cast<double>(result.num_targets) : 0);
  }

  void resume_rollout(std::int64_t part) {
    rollouts_ = comm::all_or_none(context_.world,
                                  [&] { return read(context_.run_directory / "rollouts", part); });
    set_all_advantages(std::nullopt);
  }

  /// Reads the answers of this group of ranks: whole groups in the order of the prompts. `part` is
  /// the number of steps since the rollout began; if it is not 0, the file is that of this run.
  [[nodiscard]] std::vector<Rollout> read(const std::filesystem::path& place,
                                          std::int64_t part) const {
    std::vector<Rollout> rollouts;
    for (std::int64_t mini = 0; mini < mini_batches(); ++mini) {
      const std::vector<Rollout> some =
          read_replay(place, {.step = step_ - part,
                              .rollout = next_sample_ / context_.config.train.global_batch,
                              .is_saved = part > 0,
                              .answers = context_.config.train.global_batch * config_.group,
                              .first = first_prompt(mini) * config_.group,
                              .count = prompts_of_mini_batch() * config_.group,
                              .group = config_.group,
                              .vocab_size = tokens_.size,
                              .max_tokens = context_.config.train.seq_len});
      rollouts.insert(rollouts.end(), some.begin(), some.end());
    }
    return rollouts;
  }

  /// Returns the prompts of the next rollout that belong to the group of this rank.
  [[nodiscard]] std::vector<std::int64_t> prompts_of_group() const {
    std::vector<std::int64_t> prompts;
    for (std::int64_t mini = 0; mini < mini_batches(); ++mini) {
      for (std::int64_t i = 0; i < prompts_of_mini_batch(); ++i)
        prompts.push_back(next_sample_ + first_prompt(mini) + i);
    }
    return prompts;
  }

  /// Collective.
  void publish() {
    publish_rollouts(ranks_,
                     {.directory = context_.run_directory / "rollouts",
                      .step = step_,
                      .part = static_cast<std::size_t>(prompts_of_mini_batch() * config_.group)},
                     rollouts_);
    // A stop before the end of this update saves the state of the step before. The newest save may
    // not be committed yet (checkpoint.async).
    if (context_.world.rank() == 0)
      kept_.remove_old(step_,
                       {progress_.unfinished(step_ - 1, steps_of_rollout()), saved_rollout_});
    failpoint("rl.published");
  }

  [[nodiscard]] std::vector<data::Batch> make_batches(std::span<const Rollout> rollouts,
                                                      const UpdateTotals& totals) const {
    std::vector<data::Batch> batches;
    const auto rows = static_cast<std::size_t>(context_.config.train.micro_batch * config_.group);
    for (std::size_t first = 0; first < rollouts.size(); first += rows) {
      const std::span<const Rollout> some = rollouts.subspan(first, rows);
      batches.push_back(make_policy_batch(config_, some, totals,
                                          row_tokens_of(context_.config.parallel, some), pad_id()));
    }
    return batches;
  }

  [[nodiscard]] std::int64_t pad_id() const {
    return context_.stream.first_set().pad_id().value_or(0);
  }

  RlConfig config_;
  SourceContext context_;
  RolloutRanks ranks_;
  AnswerTokens tokens_;
  RolloutGenerator generator_;
  AnswerLogprobs logprobs_;
  RlMeasures measures_;
  RolloutProgress progress_;
  KeptRollouts kept_;
  std::function<bool()> is_stopped_ = [] { return false; };

  std::int64_t next_sample_ = 0;
  std::int64_t saved_rollout_ = 0;  // first step of the rollout of the newest save; 0: none
  std::int64_t step_ = 0;           // number of the last update that next() returned, from 1
  std::vector<Rollout> rollouts_;   // answers of the group of this rank, mini-batch by mini-batch
  AdvantageTotals advantages_;
};

}  // namespace

std::unique_ptr<SampleSource> make_rollout_source(const RlConfig& config,
                                                  const SourceContext& context) {
  return std::make_unique<RolloutSource>(config, context);
}

}  // namespace trireme::train
