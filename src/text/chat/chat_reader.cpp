#include "text/chat/chat_reader.hpp"

#include <utility>

#include "core/error.hpp"
#include "text/chat/record_reader.hpp"
#include "text/json/json_break.hpp"
#include "text/json/json_fields.hpp"

namespace trireme::text {
namespace {

using namespace chat_json;

}  // namespace

struct ChatReader::Impl {
  Impl(ChatForm chats, std::vector<std::string> fields) : reader(chats, std::move(fields)) {}

  simdjson::dom::parser parser;
  std::string quoted_json;  // the padded JSON text if it has odd numbers
  RecordReader reader;
  const RecordForm* form = nullptr;

  /// Parses a JSON object. Returns the reason if there is none.
  std::optional<ChatProblem> parse(std::string_view json, object& record);

  /// Reads a record. Returns the problem of a record that has another form.
  std::optional<ChatProblem> read(const object& record, std::vector<Conversation>& conversations);
};

std::optional<ChatProblem> ChatReader::Impl::parse(std::string_view json, object& record) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (json.starts_with(kByteOrderMark)) json.remove_prefix(kByteOrderMark.size());
  element root;
  reader.messages().start();
  const simdjson::error_code code =
      reader.messages().values().parse(parser, json, true, quoted_json, root);
  if (code != simdjson::SUCCESS) {
    const bool bad_text = code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR;
    return ChatProblem{
        formatted("not valid JSON: {}{}", simdjson::error_message(code), record_break(json)),
        bad_text};
  }
  if (root.get(record) != simdjson::SUCCESS) return ChatProblem{"not a JSON object"};
  return std::nullopt;
}

std::optional<ChatProblem> ChatReader::Impl::read(const object& record,
                                                  std::vector<Conversation>& conversations) {
  if (reader.chats() == ChatForm::request) {
    const auto value = find_value(record, "messages");
    if (!value) refuse_missing(record, "messages");
    conversations.push_back(reader.read_messages(record, *value, "messages"));
    return std::nullopt;
  }
  if (reader.has_own_fields() && reader.chats() == ChatForm::conversation) {
    read_own_fields(reader, record, conversations);
    return std::nullopt;
  }
  const RecordForm* own = form;
  if (own == nullptr || !own->recognizes(record)) {
    const RecordForm* found = recognize_record(record, reader.chats());
    if (own != nullptr && found != nullptr) {
      return ChatProblem{
          .reason = formatted("the record has the form {}, not {}", found->name, own->name),
          .other_form = true};
    }
    if (own == nullptr) own = found != nullptr ? found : &default_record_form(reader.chats());
  }
  own->read(reader, record, conversations);
  return std::nullopt;
}

ChatReader::ChatReader(ChatForm form, std::vector<std::string> fields)
    : impl_(std::make_unique<Impl>(form, std::move(fields))) {}

const std::vector<UnreadField>& ChatReader::unread() const {
  return impl_->reader.messages().unread();
}

ChatReader::ChatReader(ChatReader&&) noexcept = default;
ChatReader& ChatReader::operator=(ChatReader&&) noexcept = default;
ChatReader::~ChatReader() = default;

void ChatReader::set_form(const RecordForm* form) {
  impl_->form = form;
}

const RecordForm* ChatReader::recognize(const char* json, std::size_t size) {
  object record;
  if (impl_->parse({json, size}, record)) return nullptr;
  return recognize_record(record, impl_->reader.chats());
}

std::optional<ChatProblem> ChatReader::read(const char* json, std::size_t size,
                                            std::vector<Conversation>& conversations) {
  conversations.clear();
  object record;
  std::optional<ChatProblem> problem = impl_->parse({json, size}, record);
  if (problem) return problem;
  try {
    problem = impl_->read(record, conversations);
  } catch (const InvalidRecord& refused) {
    problem = ChatProblem{refused.reason, refused.bad_text};
  }
  if (problem) {
    conversations.clear();
    impl_->reader.messages().unread().clear();
    return problem;
  }
  merge_unread(impl_->reader.messages().unread());
  return std::nullopt;
}

}  // namespace trireme::text
