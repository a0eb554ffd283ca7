#include "serve/prompts.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"

namespace trireme {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
constexpr const char* kStandardInput = "standard input";

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

std::vector<Prompt> parse_prompts(const std::string& content, const std::string& name) {
  std::vector<Prompt> prompts;
  for_each_json_line(content, name, [&](const Json& record, const std::string& where) {
    if (!record.is_object())
      fail(ErrorKind::data, "{} is {}, must be {{\"prompt\": \"...\"}}", where, record.type_name());
    prompts.push_back({json_get<std::string>(record, "prompt", where), where});
  });
  if (prompts.empty())
    fail(ErrorKind::data, "{} holds no prompt; a line is {{\"prompt\": \"...\"}}", name);
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

}  // namespace trireme
