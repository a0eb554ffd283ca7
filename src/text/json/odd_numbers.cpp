#include "text/json/odd_numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace trireme::text {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
         c == '.';
}

std::size_t take_digits(std::string_view& word) {
  const auto stop = std::find_if_not(word.begin(), word.end(), is_digit);
  const auto count = static_cast<std::size_t>(stop - word.begin());
  word.remove_prefix(count);
  return count;
}

enum class Form { none, integer, real };

/// Classifies `word` by the grammar of JSON numbers (RFC 8259, section 6).
Form number_form(std::string_view word) {
  Form form = Form::integer;
  if (word.starts_with('-')) word.remove_prefix(1);
  const bool zero = word.starts_with('0');
  const std::size_t digits = take_digits(word);
  if (digits == 0 || (zero && digits > 1)) return Form::none;
  if (word.starts_with('.')) {
    form = Form::real;
    word.remove_prefix(1);
    if (take_digits(word) == 0) return Form::none;
  }
  if (word.starts_with('e') || word.starts_with('E')) {
    form = Form::real;
    word.remove_prefix(1);
    if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
    if (take_digits(word) == 0) return Form::none;
  }
  return word.empty() ? form : Form::none;
}

template <class T>
bool fits(std::string_view word) {
  T value{};
  return std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc();
}

/// Returns `word` as json.dumps writes it if it is an odd number, otherwise "".
std::string odd_number(std::string_view word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return std::string(word);
  const Form form = number_form(word);
  if (form == Form::integer && !fits<std::int64_t>(word) && !fits<std::uint64_t>(word))
    return std::string(word);
  if (form == Form::real && std::isinf(std::strtod(std::string(word).c_str(), nullptr)))
    return word.starts_with('-') ? "-Infinity" : "Infinity";
  return {};
}

}  // namespace

std::optional<std::string> quote_odd_numbers(std::string_view json) {
  std::string quoted;
  std::size_t done = 0;  // bytes of `json` that are in `quoted`
  bool might_be_taken_for_one = false;
  for (std::size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      ++at;
      might_be_taken_for_one = might_be_taken_for_one || json.substr(at).starts_with("\\u0000");
      while (at < json.size() && json[at] != '"')
        at = std::min(json.size(), at + (json[at] == '\\' ? 2 : 1));
      at = std::min(json.size(), at + 1);
    } else if (is_word(json[at])) {
      const std::size_t begin = at;
      while (at < json.size() && is_word(json[at])) ++at;
      const std::string number = odd_number(json.substr(begin, at - begin));
      if (number.empty()) continue;
      quoted.append(json.substr(done, begin - done)).append("\"\\u0000");
      quoted.append(kOddNumber.substr(1)).append(number).append("\"");
      done = at;
    } else {
      ++at;
    }
  }
  if (done == 0 || might_be_taken_for_one) return std::nullopt;
  return quoted.append(json.substr(done));
}

}  // namespace trireme::text
