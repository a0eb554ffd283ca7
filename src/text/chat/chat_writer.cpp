#include "text/chat/chat_writer.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace trireme::text {

ChatWriter::ChatWriter(const ChatTemplate& format, Tokenizer tokenizer)
    : ChatWriter(shared_chat_template(format.name), std::move(tokenizer)) {}

ChatWriter::ChatWriter(ChatTemplatePtr format, Tokenizer tokenizer)
    : format_(std::move(format)), encoder_(std::move(tokenizer), SpecialInContent::text) {
  const auto text_of = [this](std::optional<std::uint32_t> id) {
    return id ? encoder_.tokenizer().token_content(*id) : std::string();
  };
  options_.begin_token = text_of(encoder_.tokenizer().bos_id());
  options_.with_date = true;
  options_.end_token = text_of(encoder_.tokenizer().eos_id());
}

RenderedChat ChatWriter::render(const Conversation& conversation, std::optional<bool> thinking,
                                bool asks, bool finds_answers) const {
  RenderOptions options = options_;
  options.generation_prompt = asks;
  options.finds_answers = finds_answers;
  options.thinking = thinking;
  return format_->render(conversation, options);
}

std::vector<std::uint32_t> ChatWriter::encode(const RenderedChat& chat) const {
  EncodedChat encoded;
  encoder_.encode(chat, encoded);
  return std::move(encoded.ids);
}

std::string ChatWriter::turn_end_text() const {
  Conversation sample;
  sample.messages.resize(2);
  for (ChatMessage& message : sample.messages) message.content = "text";
  sample.messages[1].role = Role::assistant;
  RenderedChat rendered;
  try {
    rendered = render(sample, std::nullopt, false);
  } catch (const Error& error) {  // a Jinja template refuses the sample: its end is unknown
    if (error.kind() != ErrorKind::data) throw;
    return "";
  }
  if (rendered.ends.empty()) return "";
  const TextRange end = rendered.ends.back().token;
  return rendered.text.substr(end.begin, end.end - end.begin);
}

std::optional<std::uint32_t> ChatWriter::turn_end_id() const {
  const std::string text = turn_end_text();
  for (const AddedToken& token : encoder_.tokenizer().added_tokens()) {
    if (token.content == text) return token.id;
  }
  return std::nullopt;
}

std::vector<std::uint32_t> ChatWriter::end_tokens(std::vector<std::uint32_t> own,
                                                  std::int64_t vocab_size) const {
  const auto end = turn_end_id();
  const bool is_new = end && std::int64_t{*end} < vocab_size &&
                      std::find(own.begin(), own.end(), *end) == own.end();
  if (is_new) own.push_back(*end);
  return own;
}

std::vector<std::string> ChatWriter::end_texts(std::int64_t vocab_size) const {
  const auto id = turn_end_id();
  std::string text = turn_end_text();
  if (text.empty() || (id && std::int64_t{*id} < vocab_size)) return {};
  return {std::move(text)};
}

}  // namespace trireme::text
