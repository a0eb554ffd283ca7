#include "reward/tool_calls.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "reward/python_text.hpp"

namespace trireme::reward {
namespace {

std::optional<Json> parsed(std::string_view text) {
  constexpr JsonLimits kLimits{.max_bytes = std::size_t{1} << 20, .last_key_counts = true};
  try {
    return parse_json(text, "tool call", kLimits);
  } catch (const Error&) {
    return std::nullopt;  // a model may write anything
  }
}

}  // namespace

std::vector<Json> parse_tool_calls(std::string_view text) {
  constexpr std::string_view kOpen = "<tool_call>";
  constexpr std::string_view kClose = "</tool_call>";
  std::vector<Json> calls;
  for (std::size_t open = text.find(kOpen); open != std::string_view::npos;) {
    const std::size_t begin = open + kOpen.size();
    const std::size_t end = text.find(kClose, begin);
    if (end == std::string_view::npos) break;
    if (auto call = parsed(stripped(text.substr(begin, end - begin))))
      calls.push_back(std::move(*call));
    open = text.find(kOpen, end + kClose.size());
  }
  return calls;
}

Json call_arguments(const Json& call) {
  if (!call.is_object()) return Json::object();
  const auto found = call.find("arguments");
  if (found == call.end()) return Json::object();
  if (found->is_object()) return *found;
  if (found->is_string()) {
    auto inner = parsed(found->get_ref<const std::string&>());
    if (inner && inner->is_object()) return std::move(*inner);
  }
  return Json::object();
}

}  // namespace trireme::reward
