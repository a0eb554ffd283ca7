#include "reward/tool_program.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "reward/tool_calls.hpp"

namespace trireme::reward {
namespace {

/// Returns the JSON text without spaces; nullopt if it is no JSON.
std::optional<std::string> compact(const std::string& text) {
  try {
    return json_text(parse_json(text, "answer"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> ToolProgram::answer(const std::vector<Json>& calls) {
  constexpr std::size_t kMaxBytes = 2048;
  std::vector<std::string> lines;
  for (const Json& call : calls) {
    Json name = nullptr;
    if (call.is_object() && call.contains("name")) name = call["name"];
    lines.push_back(json_text({{"name", name}, {"arguments", call_arguments(call)}}));
  }
  std::vector<std::string> results;
  for (const std::string& line : program_.exchange(lines)) {
    const std::optional<std::string> json = compact(line);
    if (!json) {
      fail(
          ErrorKind::data,
          "rl.tool_command: the program `{}` answered '{}' to the call {}. Each answer must be one "
          "line of JSON with at most 64 levels.",
          command_, beginning_of(line), beginning_of(lines[results.size()]));
    }
    const std::string& text = *json;
    results.push_back(text.size() <= kMaxBytes ? text : R"({"error":"the result is too long"})");
  }
  return results;
}

}  // namespace trireme::reward
