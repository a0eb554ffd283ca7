#include "generate/load/prompts.hpp"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "text/chat/chat_reader.hpp"

namespace trireme::generate {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
constexpr const char* kStandardInput = "standard input";
/// ChatReader may read up to this number of bytes after the end of an object.
constexpr std::size_t kJsonPadding = 64;

std::string read_stream(std::FILE* stream, std::size_t max_bytes) {
  std::string text;
  std::array<char, 1 << 16> piece{};
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), stream)) {
    if (text.size() + count > max_bytes)
      fail(ErrorKind::data, "{} has more than {} bytes", kStandardInput, max_bytes);
    text.append(piece.data(), count);
  }
  if (std::ferror(stream) != 0) fail(ErrorKind::data, "cannot read {}", kStandardInput);
  return text;
}

std::vector<std::uint32_t> ids_of(const Json& list, const std::string& where) {
  std::vector<std::uint32_t> ids;
  for (const Json& id : list.is_array() ? list : Json::array({-1})) {
    if (!id.is_number_unsigned() ||
        id.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
      fail(ErrorKind::data, "{}: 'ids' must be a list of token ids", where);
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

PromptContent content_of(std::string_view line, const std::string& where) {
  const Json record = parse_json(line, where);
  if (record.is_object() && record.contains("messages")) {
    std::string padded(line);
    padded.reserve(line.size() + kJsonPadding);
    std::vector<text::Conversation> chats;
    text::ChatReader reader(text::ChatForm::request);
    if (const auto problem = reader.read(padded.data(), line.size(), chats))
      fail(ErrorKind::data, "{}: {}", where, problem->reason);
    return std::move(chats.front());
  }
  if (record.is_object() && record.contains("ids")) return ids_of(record["ids"], where);
  if (record.is_object() && record.contains("prompt"))
    return json_get<std::string>(record, "prompt", where);
  fail(ErrorKind::data, "{} is {}, must be {{\"prompt\"}}, {{\"ids\"}} or {{\"messages\"}}", where,
       record.is_object() ? "an object with none of these" : record.type_name());
}

std::vector<Prompt> parse_prompts(const std::string& content, const std::string& name) {
  std::vector<Prompt> prompts;
  for_each_line(content, name, [&](std::string_view line, const std::string& where) {
    prompts.push_back({content_of(line, where), where});
  });
  if (prompts.empty()) {
    fail(
        ErrorKind::data,
        "{} contains no prompt. A line must be {{\"prompt\": \"...\"}}, {{\"ids\": [..]}} or {{\"messages\": [..]}}",
        name);
  }
  return prompts;
}

}  // namespace

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  return parse_prompts(read_text(file, kMaxFileBytes), file.string());
}

std::vector<Prompt> read_prompts(std::FILE* stream) {
  return parse_prompts(read_stream(stream, kMaxFileBytes), kStandardInput);
}

std::string read_prompt(std::FILE* stream, std::size_t max_bytes) {
  std::string text = read_stream(stream, max_bytes);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace trireme::generate
