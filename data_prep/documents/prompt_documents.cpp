#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/documents/chat_parts.hpp"
#include "data_prep/documents/document_maker.hpp"
#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_reader.hpp"
#include "text/chat/chat_template.hpp"

namespace trireme::data_prep {
namespace {

Json calls_json(const std::vector<text::ToolCall>& calls) {
  Json list = Json::array();
  for (const text::ToolCall& call : calls)
    list.push_back({{"name", call.name}, {"arguments", parse_json(call.arguments, "arguments")}});
  return list;
}

Json messages_json(const text::Conversation& conversation) {
  Json list = Json::array();
  for (const text::ChatMessage& message : conversation.messages) {
    Json one = {{"role", text::role_name(message.role)}, {"content", message.content}};
    if (message.reasoning) one["reasoning_content"] = *message.reasoning;
    if (!message.tool_calls.empty()) one["tool_calls"] = calls_json(message.tool_calls);
    list.push_back(std::move(one));
  }
  return list;
}

/// Returns the record of a prompt: its messages and tools, then the other fields of the record.
/// Throws Error(data) for numbers that JSON does not have.
std::string record_text(const text::Conversation& conversation, std::string_view json) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (json.starts_with(kByteOrderMark)) json.remove_prefix(kByteOrderMark.size());
  Json record = {{"messages", messages_json(conversation)}};
  if (conversation.declares_tools) {
    Json& tools = record["tools"] = Json::array();
    for (const std::string& tool : conversation.tools) tools.push_back(parse_json(tool, "tools"));
  }
  const Json fields = parse_json(json, "the record", {.last_key_counts = true});
  for (const auto& [name, value] : fields.items()) {
    const bool is_read = name == "conversations" || name == "messages" || name == "prompt" ||
                         name == "system" || name == "tools" || name == "functions";
    if (!is_read) record[name] = value;
  }
  return json_text(record);
}

/// Makes a document of the messages before the last answer, with the header of the answer.
class PromptDocuments : public DocumentMaker {
 public:
  PromptDocuments(const text::Tokenizer& tokenizer, const DocumentRules& rules)
      : DocumentMaker(tokenizer),
        rules_(rules),
        template_(*rules.chat_template),
        encoder_(tokenizer, text::parse_special_in_content(rules.config.chat.special_in_content)),
        reader_(text::ChatForm::prompt),
        options_(render_options(tokenizer)),
        unwritten_(template_, options_) {
    options_.generation_prompt = true;
  }

  void take(const Record& record, ChunkResult& result) override {
    const auto parse = [&](const char* json, std::size_t size) -> std::optional<RecordProblem> {
      if (auto found = reader_.read(json, size, conversations_))
        return RecordProblem{std::move(found->reason), found->bad_text};
      try {
        record_ = record_text(conversations_[0], {json, size});
      } catch (const Error& error) {
        return RecordProblem{error.what()};
      }
      return std::nullopt;
    };
    const auto count = [&](std::string_view part) {
      return conversations_.empty() ? 0 : count_in(conversations_[0], part);
    };
    const TextRecord text = judge_record(record, rules_.on_bad_text, repaired_, parse, count);
    if (!is_text(text, record, result)) return;
    add_ignored(reader_.unread(), record, result);
    unwritten_.find(conversations_, unwritten_fields_);
    add_ignored(unwritten_fields_, record, result);
    for (std::int64_t copy = 0; copy < rules_.config.chat.copies; ++copy) {
      const text::ChatDraw draw{result.file, record.position, static_cast<std::uint32_t>(copy), 0};
      if (!add_prompt(record, draw, result)) return;
    }
  }

 private:
  /// Returns false if the record is invalid.
  bool add_prompt(const Record& record, const text::ChatDraw& draw, ChunkResult& result) {
    options_.thinking = text::opens_thought(rules_.augment, draw);
    text::Conversation changed = conversations_[0];
    text::add_system_prompt(rules_.augment, draw, changed);
    text::RenderedChat rendered;
    try {
      rendered = template_.render(changed, options_);
    } catch (const Error& error) {  // a Jinja template refuses the conversation
      if (error.kind() != ErrorKind::data) throw;
      add_bad(record, error.what(), result);
      return false;
    }
    if (const auto forged = encoder_.encode(rendered, encoded_)) {
      add_bad(record, formatted("a message contains the token {}", *forged), result);
      return false;
    }
    if (std::ssize(encoded_.ids) > rules_.seq_len) {
      ++result.documents.counts.dropped;
      ++result.documents.counts.dropped_long;
      return true;
    }
    add_tokens(encoded_.ids, result);
    result.documents.targets.loss.add({});
    result.documents.targets.records.add(record_);
    end_document(record, encoded_.ids.size(), xxh3_64(rendered.text), result);
    return true;
  }

  const DocumentRules& rules_;
  const text::ChatTemplate& template_;
  text::ChatEncoder encoder_;
  text::ChatReader reader_;
  text::RenderOptions options_;
  UnwrittenFields unwritten_;
  std::vector<text::UnreadField> unwritten_fields_;
  text::EncodedChat encoded_;
  std::string repaired_;
  std::string record_;
  std::vector<text::Conversation> conversations_;
};

}  // namespace

std::unique_ptr<DocumentMaker> make_prompt_documents(const text::Tokenizer& tokenizer,
                                                     const DocumentRules& rules) {
  return std::make_unique<PromptDocuments>(tokenizer, rules);
}

}  // namespace trireme::data_prep
