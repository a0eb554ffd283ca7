#include "core/step_values.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

StepValue parse_step_value(std::string_view entry) {
  const std::size_t colon = entry.find(':');
  const std::string_view left = without_blanks(entry.substr(0, colon));
  const auto step = parse_integer(left);
  if (colon == std::string_view::npos || !step || *step < 0)
    fail(ErrorKind::usage, "has the entry '{}', which is not STEP:VALUE with a step of 0 or more",
         entry);
  const auto value = parse_number(without_blanks(entry.substr(colon + 1)));
  if (!value) fail(ErrorKind::usage, "has the entry '{}', and its value is not a number", entry);
  return {*step, *value};
}

}  // namespace

std::vector<StepValue> parse_step_values(std::string_view text) {
  std::vector<StepValue> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = without_blanks(text.substr(begin, end - begin));
    values.push_back(parse_step_value(entry));
    if (values.size() > 1 && values.back().step <= values[values.size() - 2].step)
      fail(ErrorKind::usage, "has step {} after step {}, but steps must increase",
           values.back().step, values[values.size() - 2].step);
    begin = end + 1;
  }
  return values;
}

}  // namespace trireme
