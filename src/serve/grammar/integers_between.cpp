#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "serve/grammar/json_rules.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMost = 999'999'999'999'999'999;  // 18 digits

/// Numbers of as many digits as both limits have, from `least` to `most`, digit by digit.
GrammarPiece same_length(ByteGrammar& grammar, const std::string& least, const std::string& most) {
  if (least.empty()) return {};
  const auto digits = [&](char from, char to) {
    return grammar.bytes(
        ByteSet().add(static_cast<unsigned char>(from), static_cast<unsigned char>(to)));
  };
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
  std::vector<GrammarPiece> forms;
  if (whole <= last) forms.push_back(same_length(grammar, whole + zeros, last + nines));
  if (low != zeros) forms.push_back(digits(least[0], least[0]) + same_length(grammar, low, nines));
  if (high != nines) forms.push_back(digits(most[0], most[0]) + same_length(grammar, zeros, high));
  return grammar.choice(forms);
}

/// 0 <= least <= most.
void add_unsigned(ByteGrammar& grammar, std::int64_t least, std::int64_t most,
                  const GrammarPiece& sign, std::vector<GrammarPiece>& forms) {
  const std::string low = std::to_string(least);
  const std::string high = std::to_string(most);
  for (std::size_t size = low.size(); size <= high.size(); ++size) {
    const std::string first = size == low.size() ? low : "1" + std::string(size - 1, '0');
    const std::string last = size == high.size() ? high : std::string(size, '9');
    forms.push_back(sign + same_length(grammar, first, last));
  }
}

}  // namespace

GrammarPiece integers_between(ByteGrammar& grammar, std::optional<std::int64_t> least,
                              std::optional<std::int64_t> most) {
  const std::int64_t low = std::max(least.value_or(-kMost), -kMost);
  const std::int64_t high = std::min(most.value_or(kMost), kMost);
  if (low > high) fail(ErrorKind::usage, "no integer is in [{}, {}]", low, high);
  std::vector<GrammarPiece> forms;
  if (low < 0)
    add_unsigned(grammar, std::max<std::int64_t>(1, -high), -low, grammar.literal("-"), forms);
  if (high >= 0) add_unsigned(grammar, std::max<std::int64_t>(0, low), high, {}, forms);
  return grammar.choice(forms);
}

}  // namespace trireme
