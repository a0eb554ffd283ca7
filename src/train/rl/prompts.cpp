#include "train/rl/prompts.hpp"

#include <utility>

#include "core/error.hpp"

namespace trireme::train {

RlPromptReader::RlPromptReader(const data::SampleStream& stream) : stream_(stream) {
  for (const data::TokenSet* set : stream.sets())
    sets_.try_emplace(set, *set, /*seed=*/0, /*shuffle=*/false);
}

void check_length(const data::RlPrompts::Prompt& prompt, const data::TokenSet& set,
                  const RlPromptReader::Limits& limits) {
  if (std::ssize(prompt.ids) + limits.max_new_tokens > limits.max_tokens) {
    fail(ErrorKind::data,
         "Prompt {} of {} has {} tokens. With rl.max_new_tokens = {} it needs {} tokens, but "
         "{} is {}. Raise {}, lower rl.max_new_tokens, or pack shorter prompts.",
         prompt.document, set.directory().string(), prompt.ids.size(), limits.max_new_tokens,
         std::ssize(prompt.ids) + limits.max_new_tokens, limits.key, limits.max_tokens, limits.key);
  }
}

RlPrompt RlPromptReader::at(std::int64_t index, const Limits& limits) const {
  const data::StreamLocation place = stream_.locate(index);
  const data::TokenSet& set = place.samples->set();
  data::RlPrompts::Prompt prompt =
      sets_.at(&set).at(place.samples->documents().begin + place.position);
  check_length(prompt, set, limits);
  return {index, std::move(prompt.ids), std::move(prompt.record)};
}

}  // namespace trireme::train
