#include "train/task/rollout_generator.hpp"

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/process/failpoints.hpp"
#include "core/timer.hpp"
#include "device/precision.hpp"
#include "device/torch_errors.hpp"
#include "train/rl/valid_prompts.hpp"

namespace trireme::train {

RolloutGenerator::RolloutGenerator(const RlConfig& config, const SourceContext& context,
                                   const RolloutRanks& ranks, const AnswerTokens& tokens)
    : config_(config),
      context_(context),
      ranks_(ranks),
      tokens_(tokens),
      prompts_(context.stream),
      rewards_(comm::all_or_none(context.world, [&] {
        return RewardTerms({config, tokens, context.config.train.seq_len, context.device,
                            context.config.train.precision == "fp64"});
      })) {
  if (config.uses_tools())
    agent_ =
        comm::all_or_none(context.world, [&] { return std::make_unique<Agent>(config_, tokens_); });
}

std::optional<std::vector<Rollout>> RolloutGenerator::generate(
    std::span<const std::int64_t> prompts, std::int64_t step,
    const std::function<bool()>& is_stopped) {
  const Timer timer;
  copy_weights();
  std::optional<std::vector<Rollout>> own = comm::all_or_none(ranks_.world(), [&] {
    return device::with_torch_errors([&] {
      std::vector<RlPrompt> read;
      for (const std::int64_t index : prompts) read.push_back(prompts_.at(index));
      return generate_answers(
          setup_of(step - 1, is_stopped), read,
          ranks_.share(prompts.size() * static_cast<std::size_t>(config_.group)));
    });
  });
  if (is_true_on_any_rank(!own)) return std::nullopt;
  seconds_ = timer.seconds();
  failpoint("rl.rollout");
  comm::all_or_none(ranks_.world(), [&] {
    if (!own->empty()) rewards_.score(*own);
  });
  return ranks_.exchange(std::move(*own), tokens_.size);
}

GeneratedValidation RolloutGenerator::validate(std::int64_t step,
                                               const std::function<bool()>& is_stopped) {
  copy_weights();
  comm::Communicator& world = ranks_.world();
  auto sums = comm::all_or_none(world, [&] {
    return device::with_torch_errors([&] {
      const std::vector<RlPrompt> prompts =
          valid_prompts(context_.validation, world.rank(), world.size());
      return validate_prompts(setup_of(step, is_stopped), prompts, rewards_);
    });
  });
  if (is_true_on_any_rank(!sums)) return {.cancelled = true};
  for (double& sum : *sums)
    sum = comm::all_reduce_value(world, sum, comm::ReduceOp::sum, "validation");
  const auto [rewards, passed, prompts] = *sums;
  const double reward = rewards / prompts;
  return {-reward, {{"valid_reward", reward}, {"valid_pass_at_k", passed / prompts}}};
}

bool RolloutGenerator::is_true_on_any_rank(bool value) const {
  return comm::all_reduce_value(ranks_.world(), std::int64_t{value}, comm::ReduceOp::max,
                                "stop request") != 0;
}

void RolloutGenerator::copy_weights() {
  const RunConfig& run = context_.config;
  if (!parallel::divides_model(run.parallel)) return;
  if (!whole_) {
    whole_ = std::make_unique<WholeModel>(
        WholeModel::Setup{run.model, ops::path_of(run.train.fused_ops), run.lora,
                          device::precision_dtypes(run.train.precision).compute, context_.device});
  }
  whole_->copy_weights(context_.model.registry());
}

GenerationSetup RolloutGenerator::setup_of(std::int64_t weights_version,
                                           const std::function<bool()>& is_stopped) const {
  return {whole_ ? whole_->transformer() : context_.model,
          tokens_,
          config_,
          agent_.get(),
          context_.config.train.seed,
          weights_version,
          is_stopped};
}

}  // namespace trireme::train
