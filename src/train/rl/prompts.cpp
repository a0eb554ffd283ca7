#include "train/rl/prompts.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace trireme::train {

RlPromptReader::RlPromptReader(const data::SampleStream& stream) : stream_(stream) {
  for (const data::TokenSet* set : stream.sets())
    sets_.try_emplace(set, *set, /*seed=*/0, /*shuffle=*/false);
}

RlPrompt RlPromptReader::at(std::int64_t index) const {
  const data::StreamLocation place = stream_.locate(index);
  data::RlPrompts::Prompt prompt =
      sets_.at(&place.samples->set()).at(place.samples->documents().begin + place.position);
  return {index, std::move(prompt.ids), std::move(prompt.record)};
}

void check_prompt_lengths(const RlConfig& config, std::int64_t seq_len,
                          const data::SampleSet& samples) {
  const bool is_total = config.uses_tools() && config.max_total_tokens < seq_len;
  const std::int64_t most = is_total ? config.max_total_tokens : seq_len;
  const std::string_view key = is_total ? "rl.max_total_tokens" : "train.seq_len";
  const data::DocumentRange range = samples.documents();
  const data::LongPrompts found =
      data::long_prompts(samples.set(), range, most - config.max_new_tokens);
  if (found.count == 0) return;
  const auto needed = static_cast<std::int64_t>(found.longest_tokens) + config.max_new_tokens;
  const std::int64_t room = most - config.max_new_tokens;
  fail(ErrorKind::usage,
       "{}: {} of {} prompts are too long. Prompt {} has {} tokens. With rl.max_new_tokens = {} it "
       "needs {} tokens, but {} is {}. Raise {}{}.",
       samples.set().directory().string(), found.count, range.end - range.begin, found.longest,
       found.longest_tokens, config.max_new_tokens, needed, key, most, key,
       room > 0 ? formatted(", lower rl.max_new_tokens, or pack shorter prompts (trireme-data pack "
                            "--seq-len {})",
                            room)
                : " or lower rl.max_new_tokens");
}

}  // namespace trireme::train
