#include "data/order/token_weights.hpp"

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::data {
namespace {

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct WeightEntry {
  std::string_view word;
  std::string_view weight;
};

/// Iterates over the entries of the text.
class WeightEntries {
 public:
  WeightEntries(std::string_view text, std::string_view name)
      : rest_(text), text_(text), name_(name) {}

  [[nodiscard]] bool at_end() const { return done_; }

  WeightEntry next() {
    const std::size_t quoted = end_of_quoted_word();
    const std::size_t comma = rest_.find(',', quoted);
    const std::string_view entry = without_blanks(rest_.substr(0, comma));
    done_ = comma == std::string_view::npos;
    if (!done_) rest_.remove_prefix(comma + 1);
    const std::size_t equals = entry.rfind('=');
    if (equals == std::string_view::npos) bad();
    std::string_view word = without_blanks(entry.substr(0, equals));
    if (quoted != 0) {
      if (word.size() < 2 || word.back() != '"') bad();
      word = word.substr(1, word.size() - 2);
    }
    if (word.empty()) bad();
    return {word, without_blanks(entry.substr(equals + 1))};
  }

 private:
  /// Returns the position after the second quote if the entry begins with a quote; else 0.
  std::size_t end_of_quoted_word() const {
    const std::size_t first = rest_.find_first_not_of(' ');
    if (first == std::string_view::npos || rest_[first] != '"') return 0;
    const std::size_t second = rest_.find('"', first + 1);
    if (second == std::string_view::npos) bad();
    return second + 1;
  }

  [[noreturn]] void bad() const {
    fail(ErrorKind::usage, "{} = {}, must be WORD=WEIGHT,... like <think>=10,</think>=10", name_,
         text_);
  }

  std::string_view rest_;
  std::string_view text_;
  std::string_view name_;
  bool done_ = false;
};

}  // namespace

TokenWeights parse_token_weights(std::string_view text, std::string_view name,
                                 const EncodeWord& encode) {
  TokenWeights weights;
  if (without_blanks(text).empty()) return weights;
  WeightEntries entries(text, name);
  while (!entries.at_end()) {
    const auto [word, number] = entries.next();
    const auto weight = parse_number(number);
    if (!weight || !(*weight >= 0 && *weight <= std::numeric_limits<float>::max())) {
      fail(ErrorKind::usage, "{}: the weight of {} is {}, must be a number of 0 or more", name,
           word, number);
    }
    const std::vector<std::uint32_t> ids = encode(word);
    if (ids.size() != 1) {
      fail(ErrorKind::usage, "{}: {} is {} tokens of this tokenizer, must be one", name, word,
           ids.size());
    }
    if (!weights.emplace(ids.front(), static_cast<float>(*weight)).second)
      fail(ErrorKind::usage, "{}: {} is given twice", name, word);
  }
  return weights;
}

}  // namespace trireme::data
