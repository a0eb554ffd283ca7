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

std::vector<Rollout> RolloutGenerator::generate(std::span<const std::int64_t> prompts,
                                                std::int64_t step) {
  const Timer timer;
  copy_weights();
  std::vector<Rollout> own = comm::all_or_none(ranks_.world(), [&] {
    return device::with_torch_errors([&] {
      std::vector<RlPrompt> read;
      for (const std::int64_t index : prompts) read.push_back(prompts_.at(index));
      return generate_answers(
          setup_of(step - 1), read,
          ranks_.share(prompts.size() * static_cast<std::size_t>(config_.group)));
    });
  });
  seconds_ = timer.seconds();
  failpoint("rl.rollout");
  comm::all_or_none(ranks_.world(), [&] {
    if (!own.empty()) rewards_.score(own);
  });
  return ranks_.exchange(std::move(own), tokens_.size);
}

GeneratedValidation RolloutGenerator::validate(std::int64_t step) {
  copy_weights();
  comm::Communicator& world = ranks_.world();
  std::array<double, 3> sums = comm::all_or_none(world, [&] {
    return device::with_torch_errors([&] {
      const std::vector<RlPrompt> prompts =
          valid_prompts(context_.validation, world.rank(), world.size());
      return validate_prompts(setup_of(step), prompts, rewards_);
    });
  });
  for (double& sum : sums)
    sum = comm::all_reduce_value(world, sum, comm::ReduceOp::sum, "validation");
  const double reward = sums[0] / sums[2];
  return {-reward, {{"valid_reward", reward}, {"valid_pass_at_k", sums[1] / sums[2]}}};
}

void RolloutGenerator::copy_weights() {
  const RunConfig& run = context_.config;
  if (!needs_whole_model(run.parallel)) return;
  if (!whole_) {
    whole_ = std::make_unique<WholeModel>(
        WholeModel::Setup{run.model, ops::path_of(run.train.fused_ops), run.lora,
                          device::precision_dtypes(run.train.precision).compute, context_.device});
  }
  whole_->copy_weights(context_.model.registry());
}

GenerationSetup RolloutGenerator::setup_of(std::int64_t weights_version) const {
  return {whole_ ? whole_->transformer() : context_.model,
          tokens_,
          config_,
          agent_.get(),
          context_.config.train.seed,
          weights_version};
}

}  // namespace trireme::train
