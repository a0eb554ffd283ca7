#include "reward/tool_program.hpp"

#include <nlohmann/json.hpp>

#include "core/files/json_lines.hpp"
#include "reward/tool_calls.hpp"

namespace trireme::reward {

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
    const std::string text = json_text(parse_json(line, "rl.tool_command: an answer"));
    results.push_back(text.size() <= kMaxBytes ? text : R"({"error":"the result is too long"})");
  }
  return results;
}

}  // namespace trireme::reward
