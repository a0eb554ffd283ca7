#pragma once
#include <cstdint>
#include <vector>

#include "data/shards/token_set.hpp"
#include "text/chat/jinja_chat.hpp"
#include "text/tokenizer.hpp"

namespace trireme::train {

/// The token ids of generated answers.
struct AnswerTokens {
  text::Tokenizer tokenizer;
  std::int64_t size = 0;            // ids of the tokenizer; later rows of the embedding are padding
  std::vector<std::uint32_t> ends;  // the tokenizer's end token, and that of the chat format
  text::ChatTemplatePtr format;     // chat format of the prompts
};

/// Returns the tokens of a data set of prompts for a model with `vocab_size` rows. Throws
/// Error(data) if the tokenizer has gaps between its ids, or if no token ends an answer.
AnswerTokens answer_tokens(const data::TokenSet& set, std::int64_t vocab_size);

}  // namespace trireme::train
