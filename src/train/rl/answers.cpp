#include "train/rl/answers.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "device/torch_errors.hpp"
#include "generate/answer_all.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kMaxBatch = 64;

/// Returns the seed of an answer to a prompt; the engine adds the indices of sample and token.
std::int64_t seed_of(std::int64_t seed, std::int64_t prompt_index, std::int64_t turn) {
  const PhiloxWords words =
      philox4x32(philox_key(static_cast<std::uint64_t>(seed), "rl.rollout"),
                 static_cast<std::uint64_t>(prompt_index), static_cast<std::uint64_t>(turn));
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
  std::unique_ptr<RewardModel> result;
  try {
    result = device::with_torch_errors(
        [&] { return std::make_unique<RewardModel>(options, local_rank); });
  } catch (const Error& error) {
    fail(error.kind(), "rl.reward_model = {}: {}", place, error.what());
  }
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

std::vector<Rollout> begin_rollouts(const GenerationSetup& setup, std::span<const RlPrompt> prompts,
                                    AnswerRange range) {
  std::size_t index = 0;
  std::vector<Rollout> rollouts;
  for (const RlPrompt& prompt : prompts) {
    for (std::int64_t sample = 0; sample < setup.config.group; ++sample, ++index) {
      if (index < range.first || index - range.first >= range.count) continue;
      Rollout rollout;
      rollout.prompt_index = prompt.index;
      rollout.sample = sample;
      rollout.prompt = prompt.ids;
      rollout.record = prompt.record;
      rollout.weights_version = setup.weights_version;
      rollouts.push_back(std::move(rollout));
    }
  }
  return rollouts;
}

/// Returns the request for the next answer: it begins with exactly the tokens so far.
generate::Request request_of(const GenerationSetup& setup, const Rollout& rollout,
                             std::int64_t turn) {
  const RlConfig& config = setup.config;
  generate::Request request;
  request.prompt = rollout.prompt;
  request.prompt.insert(request.prompt.end(), rollout.ids.begin(), rollout.ids.end());
  request.max_tokens = config.max_new_tokens;
  if (setup.agent != nullptr)
    request.max_tokens =
        std::min(request.max_tokens, config.max_total_tokens - std::ssize(request.prompt));
  request.sampling.temperature = config.loss.temperature;
  request.sampling.top_p = config.top_p;
  request.sampling.top_k = config.top_k;
  request.sampling.seed = seed_of(setup.seed, rollout.prompt_index, turn);
  request.answer = static_cast<std::uint64_t>(rollout.sample);
  request.end_tokens = setup.tokens.ends;
  request.sampled_logprobs = true;
  return request;
}

void append_answer(const GenerationSetup& setup, const generate::Answer& answer, Rollout& rollout) {
  rollout.answer_begin = rollout.ids.size();
  for (const generate::SampledToken& token : answer.sampled) {
    rollout.ids.push_back(token.id);
    rollout.rollout_logprobs.push_back(token.logprob);
  }
  rollout.mask.resize(rollout.ids.size(), true);
  rollout.truncated = answer.finish == generate::FinishReason::length;
  rollout.answer_end = rollout.ids.size() - (rollout.truncated ? 0 : 1);
  rollout.text = setup.tokens.tokenizer.decode(rollout.last_answer());
  rollout.turns.push_back(rollout.text);
}

}  // namespace

std::optional<std::vector<Rollout>> generate_answers(const GenerationSetup& setup,
                                                     std::span<const RlPrompt> prompts,
                                                     AnswerRange range) {
  const RlConfig& config = setup.config;
  std::vector<Rollout> rollouts = begin_rollouts(setup, prompts, range);
  if (rollouts.empty()) return rollouts;
  std::size_t longest = 0;
  for (const Rollout& one : rollouts) longest = std::max(longest, one.prompt.size());
  generate::EngineConfig engine_config;
  engine_config.max_batch = std::min<std::int64_t>(std::ssize(rollouts), kMaxBatch);
  engine_config.max_context = setup.agent != nullptr
                                  ? config.max_total_tokens
                                  : static_cast<std::int64_t>(longest) + config.max_new_tokens;
  engine_config.context_option =
      setup.agent != nullptr ? "rl.max_total_tokens" : "rl.max_new_tokens";
  engine_config.cuda_graph = config.cuda_graph;
  generate::GenerationEngine engine(setup.model, setup.tokens.tokenizer, engine_config);
  const std::int64_t max_turns = setup.agent != nullptr ? config.max_turns : 1;
  std::vector<std::size_t> open(rollouts.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  for (std::int64_t turn = 0; !open.empty() && turn < max_turns; ++turn) {
    std::vector<generate::Request> requests;
    for (const std::size_t index : open)
      requests.push_back(request_of(setup, rollouts[index], turn));
    const std::vector<generate::Answer> answers = answer_all(
        engine, std::move(requests), [](auto, const auto&, const auto&) {}, setup.is_stopped);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].finish == generate::FinishReason::cancelled) return std::nullopt;
      if (answers[i].error) throw Error(*answers[i].error);
      append_answer(setup, answers[i], rollouts[open[i]]);
    }
    if (setup.agent == nullptr) break;
    open = setup.agent->continue_with_results(rollouts, open, turn + 1 == max_turns);
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
  std::vector<std::vector<std::string_view>> turns;
  for (const Rollout& one : rollouts) turns.emplace_back(one.turns.begin(), one.turns.end());
  std::vector<reward::Sample> samples;
  for (std::size_t i = 0; i < rollouts.size(); ++i) {
    const Rollout& one = rollouts[i];
    samples.push_back({.text = one.text,
                       .ids = one.last_answer(),
                       .truncated = one.truncated,
                       .record = &one.record,
                       .turns = turns[i],
                       .unfinished = one.unfinished});
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
