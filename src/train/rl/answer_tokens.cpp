#include "train/rl/answer_tokens.hpp"

#include <algorithm>

#include "checkpoint/tokenizer/model_template.hpp"
#include "core/error.hpp"
#include "text/chat/chat_writer.hpp"

namespace trireme::train {

AnswerTokens answer_tokens(const data::TokenSet& set, std::int64_t vocab_size) {
  const std::string where = set.directory().string();
  const auto files = set.tokenizer_files();
  AnswerTokens tokens{text::Tokenizer::from_files(files, where), 0, {}, nullptr};
  tokens.size = std::min<std::int64_t>(tokens.tokenizer.vocab_size(), vocab_size);
  // The engine never samples an id without a token, but the softmax of the loss can exclude only
  // the last ids. So ids without a token must be the last ones.
  while (tokens.size > 0 &&
         tokens.tokenizer.token_bytes(static_cast<std::uint32_t>(tokens.size - 1)).empty())
    --tokens.size;
  for (std::uint32_t id = 0; id < tokens.size; ++id) {
    if (!tokens.tokenizer.token_bytes(id).empty()) continue;
    fail(ErrorKind::data,
         "{}: the tokenizer has no token with id {}, but it has tokens with larger ids. trireme rl "
         "needs a tokenizer without gaps.",
         where, id);
  }
  const std::string name = set.manifest().chat_template();
  tokens.format = checkpoint::is_custom_template(name)
                      ? text::jinja_chat_template(checkpoint::jinja_of(files), where)
                      : text::shared_chat_template(name);
  if (const auto eos = tokens.tokenizer.eos_id()) tokens.ends.push_back(*eos);
  tokens.ends =
      text::ChatWriter(tokens.format, tokens.tokenizer).end_tokens(tokens.ends, tokens.size);
  std::erase_if(tokens.ends, [&](std::uint32_t id) { return id >= tokens.size; });
  if (tokens.ends.empty()) {
    fail(ErrorKind::data,
         "{}: no token ends an answer. Pack the prompts with a tokenizer that has an end token, or "
         "that has the end marker of the chat template as a token.",
         where);
  }
  return tokens;
}

}  // namespace trireme::train
