#include "reward/rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "core/number.hpp"
#include "reward/python_text.hpp"
#include "reward/tool_calls.hpp"

namespace trireme::reward {
namespace {

constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCallBegin = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";

std::vector<std::string_view> turns_of(const Sample& sample) {
  if (sample.turns.empty()) return {sample.text};
  return {sample.turns.begin(), sample.turns.end()};
}

std::vector<Json> calls_of(const Sample& sample) {
  std::vector<Json> calls;
  for (const std::string_view turn : turns_of(sample))
    for (Json& call : parse_tool_calls(answer_of(turn))) calls.push_back(std::move(call));
  return calls;
}

/// Returns the part of the last answer after its last call.
std::string_view final_text(const Sample& sample) {
  if (sample.unfinished) return "";
  const std::string_view answer = answer_of(sample.text);
  const std::size_t at = answer.rfind(kCallEnd);
  return at == std::string_view::npos ? answer : answer.substr(at + kCallEnd.size());
}

Json record_of(const Sample& sample) {
  if (sample.record == nullptr) return Json::object();
  Json record = parse_json(*sample.record, "record", {.last_key_counts = true});
  if (!record.is_object())
    fail(ErrorKind::data, "The record of a prompt is not a JSON object. Pack the data set again.");
  return record;
}

/// Returns the texts of "gt": a list, or one value.
std::vector<std::string> expected_texts(const Json& record) {
  const auto found = record.find("gt");
  if (found == record.end() || found->is_null()) return {};
  const auto text_of = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  if (!found->is_array()) return {text_of(*found)};
  std::vector<std::string> texts;
  for (const Json& value : *found) texts.push_back(text_of(value));
  return texts;
}

/// Returns the function of a tool: the tool itself, or its member "function".
const Json* function_of(const Json& tool) {
  if (!tool.is_object()) return nullptr;
  const auto inner = tool.find("function");
  return inner != tool.end() && inner->is_object() ? &*inner : &tool;
}

/// Returns the declaration of the tool with that name, or null.
const Json* find_tool(const Json& record, const std::string& name) {
  const auto tools = record.find("tools");
  if (tools == record.end() || !tools->is_array()) return nullptr;
  for (const Json& tool : *tools) {
    const Json* function = function_of(tool);
    if (function == nullptr) continue;
    const auto found = function->find("name");
    if (found != function->end() && found->is_string() &&
        found->get_ref<const std::string&>() == name)
      return function;
  }
  return nullptr;
}

bool holds_value(const Json& arguments, const Json& name) {
  if (!name.is_string()) return true;
  const auto found = arguments.find(name.get_ref<const std::string&>());
  if (found == arguments.end() || found->is_null()) return false;
  return !found->is_string() || !found->get_ref<const std::string&>().empty();
}

bool is_valid_call(const Json& record, const Json& call) {
  if (!call.is_object()) return false;
  const auto name = call.find("name");
  if (name == call.end() || !name->is_string()) return false;
  const Json* function = find_tool(record, name->get<std::string>());
  if (function == nullptr) return false;
  const auto parameters = function->find("parameters");
  if (parameters == function->end() || !parameters->is_object()) return true;
  const auto required = parameters->find("required");
  if (required == parameters->end() || !required->is_array()) return true;
  const Json arguments = call_arguments(call);
  return std::all_of(required->begin(), required->end(),
                     [&](const Json& one) { return holds_value(arguments, one); });
}

std::string without_commas(std::string_view text) {
  std::string result(text);
  std::erase(result, ',');
  return result;
}

/// Returns the number that the whole text is, without exponent: "12", "-3.5".
std::optional<double> number_of(std::string_view text) {
  const bool is_plain = text.find_first_not_of("0123456789.+-") == std::string_view::npos;
  const std::vector<double> numbers = is_plain ? numbers_in(text) : std::vector<double>{};
  const auto value = parse_number(text);
  // "5." and ".5" are numbers for parse_number only
  return numbers.size() == 1 && value && *value == numbers[0] ? value : std::nullopt;
}

bool is_found(const std::string& expected, const std::string& small_text,
              const std::vector<double>& numbers) {
  const std::string_view text = stripped(expected);
  if (!text.empty() && small_text.find(lower(text)) != std::string::npos) return true;
  const auto value = number_of(without_commas(text));
  return value && std::any_of(numbers.begin(), numbers.end(),
                              [&](double number) { return std::abs(*value - number) < 1e-6; });
}

}  // namespace

std::string_view answer_of(std::string_view text) {
  const std::size_t at = text.find(kThinkEnd);
  return stripped(at == std::string_view::npos ? text : text.substr(at + kThinkEnd.size()));
}

double length_reward(const Sample& sample) {
  const std::size_t length = num_characters(stripped(sample.text));
  return length >= 20 && length <= 800 ? 0.5 : -0.5;
}

double thinking_reward(const Sample& sample) {
  const std::size_t end = sample.text.find(kThinkEnd);
  if (end == std::string_view::npos) return 0;
  const std::size_t length = num_characters(stripped(sample.text.substr(0, end)));
  const double size = length >= 20 && length <= 300 ? 1.0 : -0.5;
  return size + (count_of(sample.text, kThinkEnd) == 1 ? 0.25 : -0.25);
}

double repetition_reward(const Sample& sample) {
  std::string_view answer = answer_of(sample.text);
  if (!calls_of(sample).empty())
    if (const std::string_view rest = final_text(sample); !rest.empty()) answer = rest;
  const std::string small = lower(answer);
  const std::vector<std::string_view> words = words_and_signs(small);
  if (words.size() < 3) return 0;
  std::set<std::vector<std::string_view>> different;
  const std::size_t count = words.size() - 2;
  for (auto word = words.begin(); word + 2 != words.end(); ++word)
    different.insert({word, word + 3});
  constexpr double kCap = 0.5;
  const auto repeated = static_cast<double>(count - different.size());
  return -std::min(kCap, repeated * kCap * 2 / static_cast<double>(count));
}

double tags_reward(const Sample& sample) {
  double unbalanced = 0;
  for (const std::string_view turn : turns_of(sample)) {
    const std::string_view answer = answer_of(turn);
    unbalanced += std::abs(static_cast<double>(count_of(answer, kCallBegin)) -
                           static_cast<double>(count_of(answer, kCallEnd)));
  }
  return -0.5 * unbalanced;
}

double tools_reward(const Sample& sample) {
  const std::vector<Json> calls = calls_of(sample);
  if (calls.empty()) return 0;
  const Json record = record_of(sample);
  const auto valid = std::count_if(calls.begin(), calls.end(),
                                   [&](const Json& call) { return is_valid_call(record, call); });
  const auto expected = std::ssize(expected_texts(record));
  const auto gap = std::abs(valid - expected) + (std::ssize(calls) - valid);
  const double aligned = gap == 0 ? 0.5 : -0.5 * static_cast<double>(gap);
  return aligned - (sample.unfinished ? 0.5 : 0.0);
}

double gt_reward(const Sample& sample) {
  const std::vector<std::string> expected = expected_texts(record_of(sample));
  if (expected.empty()) return 0;
  const std::string_view text = final_text(sample);
  const std::string small_text = lower(text);
  const std::vector<double> numbers = numbers_in(without_commas(text));
  // A text that occurs twice in "gt" counts once, as in MiniMind.
  std::set<std::string_view> found;
  for (const std::string& one : expected)
    if (is_found(one, small_text, numbers)) found.insert(one);
  return 2.5 * static_cast<double>(found.size()) / static_cast<double>(expected.size());
}

}  // namespace trireme::reward
