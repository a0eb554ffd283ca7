#include "config/check_options.hpp"

#include <cmath>
#include <utility>

#include "config/config_set.hpp"

namespace trireme::config {
namespace {

/// Formats a limit; a whole number has no decimal point or exponent.
std::string limit_text(double limit) {
  const bool whole = limit == std::floor(limit) && std::abs(limit) < 9e15;
  return whole ? std::to_string(static_cast<std::int64_t>(limit)) : number_text(limit);
}

template <class Number>
void check_range(const Field& field, const std::string& option, Number value, Problems& problems) {
  const auto [least, most] = std::pair(field.traits.least, field.traits.most);
  const auto number = static_cast<double>(value);
  if (number >= least && number <= most) return;
  problems.add(option, value,
               std::isinf(most)
                   ? formatted("must be {} or more", limit_text(least))
                   : formatted("must be in [{}, {}]", limit_text(least), limit_text(most)));
}

}  // namespace

void check_options(const std::vector<Field>& fields, Problems& problems) {
  for (const Field& field : fields) {
    const std::string option = option_name(field.key);
    if (const auto* const* text = std::get_if<std::string*>(&field.value);
        text != nullptr && !field.traits.values.empty())
      problems.one_of(option, **text, field.traits.values);
    if (const auto* const* integer = std::get_if<std::int64_t*>(&field.value))
      check_range(field, option, **integer, problems);
    if (const auto* const* number = std::get_if<double*>(&field.value))
      check_range(field, option, **number, problems);
  }
}

}  // namespace trireme::config
