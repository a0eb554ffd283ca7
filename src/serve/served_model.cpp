#include "serve/served_model.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "serve/openai/api_error.hpp"
#include "text/encode_text.hpp"

namespace trireme::serve {
namespace {

constexpr std::array<std::string_view, 4> kMarkers{"<think>", "</think>", "<tool_call>",
                                                   "</tool_call>"};

bool is_special_marker(const text::AddedToken& token) {
  return token.special &&
         std::find(kMarkers.begin(), kMarkers.end(), token.content) != kMarkers.end();
}

}  // namespace

ServedModel::ServedModel(ModelProperties facts, text::Tokenizer tokenizer,
                         generate::AnswerSource& source)
    : facts_(std::move(facts)),
      tokenizer_(std::move(tokenizer)),
      source_(source),
      chat_end_tokens_(facts_.end_tokens) {
  const std::vector<text::AddedToken>& added = tokenizer_.added_tokens();
  has_special_markers_ = std::any_of(added.begin(), added.end(), is_special_marker);
  sorted_tokens_ = std::make_shared<SortedTokens>(tokenizer_, kMarkers, facts_.vocab_size);
  if (facts_.chat == nullptr) return;
  writer_.emplace(facts_.chat, tokenizer_);
  chat_end_tokens_ = writer_->end_tokens(facts_.end_tokens, facts_.vocab_size);
  chat_end_texts_ = writer_->end_texts(facts_.vocab_size);
}

void ServedModel::require_tokenizer(const std::string& field) const {
  if (!tokenizer_.is_ids_only()) return;
  throw ApiError(
      400,
      formatted(
          "{} requires a tokenizer, but this model has no readable one. Send lists of token ids as "
          "prompt of /v1/completions.",
          field),
      field, "no_tokenizer");
}

std::vector<std::uint32_t> ServedModel::encode(const std::string& text,
                                               const std::string& field) const {
  require_tokenizer(field);
  std::vector<std::uint32_t> ids = text::encode_text(tokenizer_, text);
  if (ids.empty())
    refuse_field(field, field + " is empty, and the tokenizer has no BOS token. Send a non-empty " +
                            field + ".");
  return ids;
}

RenderedPrompt ServedModel::write(const ChatInput& input, bool opens_thought) const {
  require_tokenizer("messages");
  if (!writer_) {
    throw ApiError(
        400,
        "The checkpoint has no chat template. Use /v1/completions, or start the server with "
        "--chat-template.",
        "messages", "no_chat_template");
  }
  const text::ChatTemplate& format = writer_->format();
  if (format.calls == text::CallForm::none && !input.conversation.tools.empty())
    refuse_field("tools", formatted("tools are not supported by the chat format {}", format.name));
  text::RenderedChat rendered;
  try {
    rendered = writer_->render(input.conversation, input.thinking, input.generation_prompt,
                               /*finds_answers=*/false);
  } catch (const Error& error) {  // a Jinja template refuses the conversation
    if (error.kind() != ErrorKind::data) throw;
    refuse_field("messages", error.what());
  }
  const bool thinks =
      format.thinking != text::ThinkingSwitch::none &&
      input.thinking.value_or(format.thinking == text::ThinkingSwitch::on_by_default);
  bool is_open = input.generation_prompt && rendered.opens_thought();
  if (opens_thought && thinks && input.generation_prompt && !is_open) {
    rendered.fixed(text::kOpenedThought);
    is_open = true;
  }
  std::vector<std::uint32_t> ids = writer_->encode(rendered);
  if (ids.empty())
    refuse_field("messages", "messages have no text. Send at least one non-empty message.");
  return {std::move(rendered.text), std::move(ids), is_open};
}

}  // namespace trireme::serve
