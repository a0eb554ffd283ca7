#include "scheduler/slurm/node_lists.hpp"

#include <cstdint>
#include <optional>

#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMostNodes = 1 << 20;

/// Splits the list at commas outside brackets.
std::vector<std::string> outer_parts(std::string_view list) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (const char c : list) {
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (c == ',' && !inside) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Expands "07-09" to 07, 08, 09; none for another form.
std::optional<std::vector<std::string>> numbers_of(const std::string& range) {
  const std::vector<std::string> ends = split(range, '-');
  const auto first = parse_integer(ends.front());
  const auto last = parse_integer(ends.back());
  if (ends.size() > 2 || !first || !last || *first < 0 || *last - *first >= kMostNodes)
    return std::nullopt;
  std::vector<std::string> numbers;
  for (std::int64_t number = *first; number <= *last; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < ends.front().size())
      digits.insert(0, ends.front().size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return numbers;
}

/// Appends the names of one part, which may have several brackets: "r[0-1]n[0-3]". Returns false if
/// the part has another form.
bool expand_part(const std::string& before, const std::string& part,
                 std::vector<std::string>& names) {
  const std::size_t open = part.find('[');
  if (open == std::string::npos) {
    if ((before + part).empty()) return false;
    names.push_back(before + part);
    return static_cast<std::int64_t>(names.size()) <= kMostNodes;
  }
  const std::size_t close = part.find(']', open);
  if (close == std::string::npos) return false;
  for (const std::string& range : split(part.substr(open + 1, close - open - 1), ',')) {
    const auto numbers = numbers_of(range);
    if (!numbers) return false;
    for (const std::string& number : *numbers) {
      if (!expand_part(before + part.substr(0, open) + number, part.substr(close + 1), names))
        return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> expand_nodes(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string& part : outer_parts(list)) {
    if (!expand_part("", part, names)) return {};
  }
  return names;
}

std::vector<StepNode> step_nodes(std::string_view list, std::string_view tasks) {
  std::vector<StepNode> nodes;
  for (std::string& name : expand_nodes(list)) nodes.push_back({std::move(name), 0});
  std::size_t next = 0;
  for (const std::string& part : split(tasks, ',')) {
    const std::size_t open = part.find("(x");
    const auto count = parse_integer(part.substr(0, open));
    const bool repeats = open != std::string::npos && part.ends_with(')');
    const auto times = repeats ? parse_integer(part.substr(open + 2, part.size() - open - 3))
                               : std::optional<std::int64_t>(1);
    if (!count || *count < 0 || *count >= kMostNodes || !times || *times < 0 ||
        next + static_cast<std::size_t>(*times) > nodes.size())
      return {};
    for (std::int64_t i = 0; i < *times; ++i) nodes[next++].tasks = static_cast<int>(*count);
  }
  if (next != nodes.size()) return {};
  return nodes;
}

}  // namespace trireme
