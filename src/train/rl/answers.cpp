#include "train/rl/answers.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "device/torch_errors.hpp"
#include "generate/engine.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kMaxBatch = 64;

/// Returns the seed of a prompt; the engine adds the indices of answer and token.
std::int64_t seed_of(std::int64_t seed, std::int64_t prompt_index) {
  const PhiloxWords words = philox4x32(philox_key(static_cast<std::uint64_t>(seed), "rl.rollout"),
                                       static_cast<std::uint64_t>(prompt_index), 0);
  return static_cast<std::int64_t>((std::uint64_t{words[0]} << 31) ^ words[1]);
}

std::unique_ptr<RewardModel> load_reward_model(const RewardSetup& setup) {
  const std::string& place = setup.config.reward_model;
  generate::ModelOptions options;
  options.checkpoint = place;
  options.threads = at::get_num_threads();  // do not change the number of threads
  options.device = setup.device.is_cuda() ? "cuda" : "cpu";
  options.precision = setup.is_fp64 ? "fp64" : "fp32";
  const int local_rank = setup.device.has_index() ? setup.device.index() : 0;
  auto result =
      device::with_torch_errors([&] { return std::make_unique<RewardModel>(options, local_rank); });
  const text::Tokenizer& own = setup.tokens.tokenizer;
  const text::Tokenizer& other = result->model().tokenizer;
  bool is_equal = own.vocab_size() == other.vocab_size() && !other.is_ids_only();
  for (std::uint32_t id = 0; is_equal && id < own.vocab_size(); ++id)
    is_equal = own.token_bytes(id) == other.token_bytes(id);
  if (!is_equal) {
    fail(ErrorKind::usage,
         "rl.reward_model = {} has another tokenizer than the prompts. Train a reward model with "
         "the tokenizer of the prompts.",
         place);
  }
  const std::int64_t most = result->model().transformer->config().max_seq_len;
  if (setup.seq_len > most) {
    fail(ErrorKind::usage,
         "train.seq_len is {}. It must be at most {}, the model.max_seq_len of rl.reward_model = "
         "{}.",
         setup.seq_len, most, place);
  }
  return result;
}

}  // namespace

std::vector<Rollout> generate_answers(const GenerationSetup& setup,
                                      std::span<const RlPrompt> prompts) {
  const RlConfig& config = setup.config;
  std::vector<generate::Request> requests;
  std::vector<Rollout> rollouts;
  std::size_t longest = 0;
  for (const RlPrompt& prompt : prompts) {
    longest = std::max(longest, prompt.ids.size());
    for (std::int64_t sample = 0; sample < config.group; ++sample) {
      generate::Request request;
      request.prompt = prompt.ids;
      request.max_tokens = config.max_new_tokens;
      request.sampling.temperature = config.loss.temperature;
      request.sampling.top_p = config.top_p;
      request.sampling.top_k = config.top_k;
      request.sampling.seed = seed_of(setup.seed, prompt.index);
      request.answer = static_cast<std::uint64_t>(sample);
      request.end_tokens = setup.tokens.ends;
      request.sampled_logprobs = true;
      requests.push_back(std::move(request));
      Rollout rollout;
      rollout.prompt_index = prompt.index;
      rollout.sample = sample;
      rollout.prompt = prompt.ids;
      rollout.record = prompt.record;
      rollout.weights_version = setup.weights_version;
      rollouts.push_back(std::move(rollout));
    }
  }
  generate::EngineConfig engine_config;
  engine_config.max_batch = std::min<std::int64_t>(std::ssize(requests), kMaxBatch);
  engine_config.max_context = static_cast<std::int64_t>(longest) + config.max_new_tokens;
  engine_config.context_option = "rl.max_new_tokens";
  generate::GenerationEngine engine(setup.model, setup.tokens.tokenizer, engine_config);
  const std::vector<generate::Answer> answers = answer_all(engine, std::move(requests));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].error) throw Error(*answers[i].error);
    Rollout& rollout = rollouts[i];
    for (const generate::SampledToken& token : answers[i].sampled) {
      rollout.ids.push_back(token.id);
      rollout.rollout_logprobs.push_back(token.logprob);
    }
    rollout.mask.assign(rollout.ids.size(), true);
    rollout.truncated = answers[i].finish == generate::FinishReason::length;
    const std::size_t length = rollout.ids.size() - (rollout.truncated ? 0 : 1);
    rollout.text = setup.tokens.tokenizer.decode(std::span(rollout.ids).first(length));
  }
  return rollouts;
}

RewardTerms::RewardTerms(const RewardSetup& setup) {
  const RlConfig& config = setup.config;
  if (!config.replay.empty()) return;
  for (reward::WeightedTerm& term : reward::parse_rewards(config.rewards)) {
    std::unique_ptr<reward::RewardTerm> scorer;
    if (term.name == reward::kModelTerm) {
      model_ = load_reward_model(setup);
    } else {
      scorer = reward::make_term(term.name, {config.reward_command, config.reward_timeout_s});
    }
    terms_.emplace_back(std::move(term), std::move(scorer));
  }
}

std::vector<double> RewardTerms::score_by_model(std::span<const Rollout> rollouts) const {
  std::vector<std::vector<std::uint32_t>> sequences;
  for (const Rollout& one : rollouts) {
    sequences.push_back(one.prompt);
    sequences.back().insert(sequences.back().end(), one.ids.begin(), one.ids.end());
  }
  return device::with_torch_errors([&] { return model_->score(sequences); });
}

void RewardTerms::score(std::span<Rollout> rollouts) {
  std::vector<reward::Sample> samples;
  for (const Rollout& one : rollouts) {
    const std::size_t length = one.ids.size() - (one.truncated ? 0 : 1);
    samples.push_back({.text = one.text,
                       .ids = std::span(one.ids).first(length),
                       .truncated = one.truncated,
                       .record = &one.record});
  }
  for (Rollout& one : rollouts) one.reward = 0;
  for (auto& [term, scorer] : terms_) {
    const std::vector<double> values = scorer ? scorer->score(samples) : score_by_model(rollouts);
    TRIREME_ASSERT(values.size() == rollouts.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      rollouts[i].rewards[term.name] = values[i];
      rollouts[i].reward += term.weight * values[i];
    }
  }
}

}  // namespace trireme::train
