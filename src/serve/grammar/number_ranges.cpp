#include "serve/grammar/number_ranges.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace trireme::serve {
namespace {

constexpr std::int64_t kMost = 999'999'999'999'999'999;  // 18 digits

/// Returns one digit from `from` to `to`.
GrammarSequence digits_from(ByteGrammar& grammar, char from, char to) {
  return grammar.bytes(
      ByteSet().add(static_cast<unsigned char>(from), static_cast<unsigned char>(to)));
}

/// Returns the numbers from `least` to `most`, digit by digit. Both must have the same number of
/// digits.
GrammarSequence same_length(ByteGrammar& grammar, const std::string& least,
                            const std::string& most) {
  if (least.empty()) return {};
  const auto digits = [&](char from, char to) { return digits_from(grammar, from, to); };
  const std::string low = least.substr(1);
  const std::string high = most.substr(1);
  const std::string zeros(low.size(), '0');
  const std::string nines(low.size(), '9');
  if (least[0] == most[0]) return digits(least[0], least[0]) + same_length(grammar, low, high);
  if (low == zeros && high == nines) {
    return digits(least[0], most[0]) + grammar.repeated(digits('0', '9'),
                                                        static_cast<std::int64_t>(low.size()),
                                                        static_cast<std::int64_t>(low.size()));
  }
  const auto whole = static_cast<char>(least[0] + (low == zeros ? 0 : 1));
  const auto last = static_cast<char>(most[0] - (high == nines ? 0 : 1));
  std::vector<GrammarSequence> forms;
  if (whole <= last) forms.push_back(same_length(grammar, whole + zeros, last + nines));
  if (low != zeros) forms.push_back(digits(least[0], least[0]) + same_length(grammar, low, nines));
  if (high != nines) forms.push_back(digits(most[0], most[0]) + same_length(grammar, zeros, high));
  return grammar.choice(forms);
}

/// Appends the numbers from `least` to `most`. 0 <= least <= most.
void add_unsigned(ByteGrammar& grammar, std::int64_t least, std::int64_t most,
                  const GrammarSequence& sign, std::vector<GrammarSequence>& forms) {
  const std::string low = std::to_string(least);
  const std::string high = std::to_string(most);
  for (std::size_t size = low.size(); size <= high.size(); ++size) {
    const std::string first = size == low.size() ? low : "1" + std::string(size - 1, '0');
    const std::string last = size == high.size() ? high : std::string(size, '9');
    forms.push_back(sign + same_length(grammar, first, last));
  }
}

constexpr int kMostPlaces = 16;  // digits after the point
constexpr double kMostLimit = 1e15;
constexpr std::int64_t kMostWhole = 9'999'999'999'999'999;  // 16 digits

/// A limit of magnitudes, digit by digit.
struct Bound {
  std::int64_t whole = 0;
  std::string fraction;  // digits after the point, without zeros at the end
  bool is_exclusive = false;
};

/// A limit of the digits that follow; no value: every digit is inside.
using DigitLimit = std::optional<Bound>;

Bound bound_of(double magnitude, bool is_exclusive) {
  std::array<char, 400> text{};  // the longest fraction of a double has 324 zeros and 17 digits
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), magnitude, std::chars_format::fixed)
          .ptr;
  const std::string number(text.data(), end);
  const std::size_t point = number.find('.');
  Bound bound{std::stoll(number.substr(0, point)), "", is_exclusive};
  if (point != std::string::npos) bound.fraction = number.substr(point + 1);
  while (!bound.fraction.empty() && bound.fraction.back() == '0') bound.fraction.pop_back();
  return bound;
}

/// Returns the digits of fractions between two limits that both have `whole` before the point.
class Fractions {
 public:
  explicit Fractions(ByteGrammar& grammar) : grammar_(grammar) {}

  /// Appends what may follow the digits before the point: nothing, or a point and more digits.
  void add(const GrammarSequence& whole, const DigitLimit& low, const DigitLimit& high,
           std::vector<GrammarSequence>& forms) {
    if (may_end(low, high)) forms.push_back(whole);
    if (const auto digits = more_digits(low, high, kMostPlaces))
      forms.push_back(whole + grammar_.literal(".") + *digits);
  }

 private:
  /// Returns true if a number may end here, so that only zeros follow.
  static bool may_end(const DigitLimit& low, const DigitLimit& high) {
    const bool is_above = !low || (low->fraction.empty() && !low->is_exclusive);
    const bool is_below = !high || !high->fraction.empty() || !high->is_exclusive;
    return is_above && is_below;
  }

  static char first_digit(const Bound& bound) {
    return bound.fraction.empty() ? '0' : bound.fraction.front();
  }

  static Bound after_first(Bound bound) {
    if (!bound.fraction.empty()) bound.fraction.erase(0, 1);
    return bound;
  }

  /// Returns 1 to `places` more digits; nothing if no such digits exist.
  std::optional<GrammarSequence> more_digits(const DigitLimit& low, const DigitLimit& high,
                                             int places) {
    if (places == 0) return std::nullopt;
    const bool is_open_below = !low || (low->fraction.empty() && !low->is_exclusive);
    if (is_open_below && !high)
      return grammar_.repeated(digits_from(grammar_, '0', '9'), 1, places);
    const DigitLimit from = is_open_below ? std::nullopt : low;
    std::vector<GrammarSequence> forms;
    const char first = from ? first_digit(*from) : '0';
    const char last = high ? first_digit(*high) : '9';
    if (first > last) return std::nullopt;
    const auto add_digit = [&](char digit, const DigitLimit& next_low,
                               const DigitLimit& next_high) {
      const GrammarSequence here = digits_from(grammar_, digit, digit);
      if (may_end(next_low, next_high)) forms.push_back(here);
      if (const auto rest = more_digits(next_low, next_high, places - 1))
        forms.push_back(here + *rest);
    };
    const bool limits_first = from.has_value();
    const bool limits_last = high.has_value();
    const auto inner_first = static_cast<char>(first + (limits_first ? 1 : 0));
    const auto inner_last = static_cast<char>(last - (limits_last ? 1 : 0));
    if (inner_first <= inner_last)
      forms.push_back(digits_from(grammar_, inner_first, inner_last) +
                      grammar_.repeated(digits_from(grammar_, '0', '9'), 0, places - 1));
    if (limits_first && limits_last && first == last) {
      add_digit(first, after_first(*from), after_first(*high));
    } else {
      if (limits_first) add_digit(first, after_first(*from), std::nullopt);
      if (limits_last) add_digit(last, std::nullopt, after_first(*high));
    }
    if (forms.empty()) return std::nullopt;
    return grammar_.choice(forms);
  }

  ByteGrammar& grammar_;
};

/// Appends the numbers with magnitudes from `low` to `high`; no `high`: no limit.
void add_magnitudes(ByteGrammar& grammar, const GrammarSequence& sign, const Bound& low,
                    const DigitLimit& high, std::vector<GrammarSequence>& forms) {
  Fractions fractions(grammar);
  const auto whole_of = [&](std::int64_t whole) {
    return sign + grammar.literal(std::to_string(whole));
  };
  if (high && high->whole == low.whole) return fractions.add(whole_of(low.whole), low, high, forms);
  fractions.add(whole_of(low.whole), low, std::nullopt, forms);
  const std::int64_t last = high ? high->whole - 1 : kMostWhole;
  if (low.whole < last)
    fractions.add(sign + integers_between(grammar, low.whole + 1, last), std::nullopt, std::nullopt,
                  forms);
  if (high) fractions.add(whole_of(high->whole), std::nullopt, high, forms);
}

void check_limit(const std::optional<NumberLimit>& limit) {
  if (limit && !(std::abs(limit->value) < kMostLimit))
    fail(ErrorKind::usage, "{} as a limit of numbers is too large; it must be less than {}",
         limit->value, kMostLimit);
}

}  // namespace

GrammarSequence integers_between(ByteGrammar& grammar, std::optional<std::int64_t> least,
                                 std::optional<std::int64_t> most) {
  const std::int64_t low = std::max(least.value_or(-kMost), -kMost);
  const std::int64_t high = std::min(most.value_or(kMost), kMost);
  if (low > high)
    fail(ErrorKind::usage, "There is no integer in [{}, {}]. Check minimum and maximum.", low,
         high);
  std::vector<GrammarSequence> forms;
  if (low < 0)
    add_unsigned(grammar, std::max<std::int64_t>(1, -high), -low, grammar.literal("-"), forms);
  if (high >= 0) add_unsigned(grammar, std::max<std::int64_t>(0, low), high, {}, forms);
  return grammar.choice(forms);
}

GrammarSequence numbers_between(ByteGrammar& grammar, const std::optional<NumberLimit>& least,
                                const std::optional<NumberLimit>& most) {
  check_limit(least);
  check_limit(most);
  std::vector<GrammarSequence> forms;
  const bool has_negative = !least || least->value < 0;
  if (has_negative) {
    const bool is_below_zero = most && most->value < 0;
    const Bound low = is_below_zero ? bound_of(-most->value, most->is_exclusive)
                                    : Bound{.whole = 0, .fraction = "", .is_exclusive = true};
    DigitLimit high;
    if (least) high = bound_of(-least->value, least->is_exclusive);
    const bool is_ordered = !is_below_zero || !least || least->value <= most->value;
    if (is_ordered) add_magnitudes(grammar, grammar.literal("-"), low, high, forms);
  }
  if (!most || most->value >= 0) {
    const bool is_above_zero = least && least->value >= 0;
    const Bound low = is_above_zero ? bound_of(least->value, least->is_exclusive) : Bound{};
    DigitLimit high;
    if (most) high = bound_of(most->value, most->is_exclusive);
    const bool is_ordered = !is_above_zero || !most || least->value <= most->value;
    if (is_ordered) add_magnitudes(grammar, {}, low, high, forms);
  }
  if (forms.empty())
    fail(ErrorKind::usage,
         "There is no number between the limits. Check minimum, maximum, exclusiveMinimum and "
         "exclusiveMaximum.");
  return grammar.choice(forms);
}

}  // namespace trireme::serve
