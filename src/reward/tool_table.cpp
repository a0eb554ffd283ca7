#include "reward/tool_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "reward/expression.hpp"
#include "reward/python_text.hpp"
#include "reward/tool_calls.hpp"

namespace trireme::reward {
namespace {

constexpr std::size_t kMaxResultBytes = 2048;  // as in MiniMind

Json error_result(std::string_view reason) {
  return {{"error", reason}};
}

/// Returns a member that is a string, or null.
const std::string* text_in(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? &found->get_ref<const std::string&>()
                                                     : nullptr;
}

Json compute_expression(const Json& /*tool*/, const Json& arguments) {
  const std::string* expression = text_in(arguments, "expression");
  if (expression == nullptr) return error_result("the argument expression is missing");
  const ExpressionResult result = evaluate_expression(*expression);
  if (!result.error.empty()) return error_result(result.error);
  return {{"result", value_text(result.value)}};
}

Json look_up(const Json& tool, const Json& arguments) {
  const std::string& name = tool["argument"].get_ref<const std::string&>();
  const std::string* key = text_in(arguments, name);
  if (key != nullptr) {
    const auto found = tool["values"].find(*key);
    if (found != tool["values"].end()) return {{"result", *found}};
  }
  const auto usual = tool.find("default");
  if (usual != tool.end()) return {{"result", *usual}};
  return error_result(key == nullptr ? formatted("the argument {} is missing", name)
                                     : std::string("no such entry"));
}

Json convert_units(const Json& tool, const Json& arguments) {
  const auto value = arguments.find("value");
  const std::string* from = text_in(arguments, "from_unit");
  const std::string* to = text_in(arguments, "to_unit");
  if (value == arguments.end() || !value->is_number() || from == nullptr || to == nullptr)
    return error_result("the arguments value (a number), from_unit and to_unit are needed");
  const auto factor = tool["factors"].find(cat(lower(*from), "_", lower(*to)));
  if (factor == tool["factors"].end()) return error_result("unknown units");
  const double result = value->get<double>() * factor->get<double>();
  if (!std::isfinite(result)) return error_result("the result is too large");
  return {{"result", std::round(result * 1e4) / 1e4}};
}

struct ToolKind {
  std::string_view name;
  std::string_view needs;  // members beside the declaration
  Json (*compute)(const Json& tool, const Json& arguments);
};

constexpr std::array kToolKinds{
    ToolKind{"expression", "", compute_expression},
    ToolKind{"lookup", "argument (a text) and values (an object)", look_up},
    ToolKind{"units", "factors (an object of numbers)", convert_units},
};

const ToolKind* kind_of(const Json& tool) {
  const std::string* name = text_in(tool, "kind");
  if (name == nullptr) return nullptr;
  const auto* found = std::ranges::find(kToolKinds, *name, &ToolKind::name);
  return found == kToolKinds.end() ? nullptr : found;
}

bool has_members(const Json& tool, std::string_view kind) {
  if (kind == "lookup")
    return text_in(tool, "argument") != nullptr && tool.contains("values") &&
           tool["values"].is_object();
  if (kind != "units") return true;
  return tool.contains("factors") && tool["factors"].is_object() &&
         std::ranges::all_of(tool["factors"], [](const Json& one) { return one.is_number(); });
}

void check_tool(const Json& tool, std::size_t number, std::string_view where) {
  const std::string place = formatted("{}: tool {}", where, number);
  if (!tool.is_object()) fail(ErrorKind::data, "{} is not a JSON object.", place);
  if (text_in(tool, "name") == nullptr)
    fail(ErrorKind::data, "{} has no name. Give the text \"name\".", place);
  const ToolKind* kind = kind_of(tool);
  if (kind == nullptr)
    fail(ErrorKind::data,
         "{} ({}) has no known kind. Its kind must be expression, lookup or units.", place,
         *text_in(tool, "name"));
  if (!has_members(tool, kind->name))
    fail(ErrorKind::data, "{} ({}) of kind {} needs {}.", place, *text_in(tool, "name"), kind->name,
         kind->needs);
}

}  // namespace

ToolTable ToolTable::load(const std::filesystem::path& path) {
  return parse(read_json(path).dump(), path.string());
}

ToolTable ToolTable::parse(std::string_view text, std::string_view where) {
  const Json list = parse_json(text, where);
  if (!list.is_array()) fail(ErrorKind::data, "{} is not a JSON list of tools.", where);
  ToolTable table;
  for (const Json& tool : list) {
    check_tool(tool, table.tools_.size(), where);
    const auto is_same = [&](const Json& other) { return other["name"] == tool["name"]; };
    if (std::ranges::any_of(table.tools_, is_same))
      fail(ErrorKind::data, "{}: two tools have the name {}. Give each name once.", where,
           *text_in(tool, "name"));
    table.tools_.push_back(tool);
  }
  return table;
}

Json ToolTable::declarations() const {
  Json list = Json::array();
  for (const Json& tool : tools_) {
    Json function = Json::object();
    for (const char* key : {"name", "description", "parameters"})
      if (tool.contains(key)) function[key] = tool[key];
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

std::string ToolTable::answer(const Json& call) const {
  const std::string* name = call.is_object() ? text_in(call, "name") : nullptr;
  const auto found = std::ranges::find_if(
      tools_, [&](const Json& tool) { return name != nullptr && tool["name"] == *name; });
  if (found == tools_.end()) return json_text(error_result("tool not found"));
  std::string text = json_text(kind_of(*found)->compute(*found, call_arguments(call)));
  if (text.size() > kMaxResultBytes) text = json_text(error_result("the result is too long"));
  return text;
}

}  // namespace trireme::reward
