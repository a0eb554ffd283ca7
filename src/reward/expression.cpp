#include "reward/expression.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::reward {
namespace {

constexpr std::size_t kMaxExpressionBytes = 1000;
constexpr int kMaxNesting = 50;

/// Thrown to leave the nested functions of the parser.
struct NoValue {
  std::string reason;
};

using Values = std::vector<double>;

struct ExpressionFunction {
  std::string_view name;
  std::size_t least;  // number of arguments
  std::size_t most;
  double (*compute)(const Values& values);
};

constexpr std::size_t kAnyNumber = 1000;

constexpr std::array kFunctions{
    ExpressionFunction{"abs", 1, 1, [](const Values& v) { return std::abs(v[0]); }},
    ExpressionFunction{"ceil", 1, 1, [](const Values& v) { return std::ceil(v[0]); }},
    ExpressionFunction{"exp", 1, 1, [](const Values& v) { return std::exp(v[0]); }},
    ExpressionFunction{"floor", 1, 1, [](const Values& v) { return std::floor(v[0]); }},
    ExpressionFunction{"ln", 1, 1, [](const Values& v) { return std::log(v[0]); }},
    ExpressionFunction{"log10", 1, 1, [](const Values& v) { return std::log10(v[0]); }},
    ExpressionFunction{"max", 1, kAnyNumber,
                       [](const Values& v) { return *std::ranges::max_element(v); }},
    ExpressionFunction{"min", 1, kAnyNumber,
                       [](const Values& v) { return *std::ranges::min_element(v); }},
    ExpressionFunction{"pow", 2, 2, [](const Values& v) { return std::pow(v[0], v[1]); }},
    ExpressionFunction{"round", 1, 1, [](const Values& v) { return std::nearbyint(v[0]); }},
    ExpressionFunction{"sqrt", 1, 1, [](const Values& v) { return std::sqrt(v[0]); }},
};

/// Replaces signs of mathematics and full-width parentheses by those of ASCII.
std::string with_plain_signs(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kSigns{{{"\xC3\x97", '*'},
                                                                     {"\xC3\xB7", '/'},
                                                                     {"\xE2\x88\x92", '-'},
                                                                     {"\xEF\xBC\x88", '('},
                                                                     {"\xEF\xBC\x89", ')'}}};
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const auto* found = std::ranges::find_if(
        kSigns, [&](const auto& sign) { return text.substr(at).starts_with(sign.first); });
    plain += found == kSigns.end() ? text[at] : found->second;
    at += found == kSigns.end() ? 1 : found->first.size();
  }
  return plain;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// A parser by recursive descent that computes while it reads.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  double parse() {
    const double value = sum();
    if (!rest().empty()) refuse();
    return value;
  }

 private:
  /// Counts the nesting of a function of the parser.
  class Nesting {
   public:
    explicit Nesting(int& level) : level_(level) {
      if (++level_ > kMaxNesting) throw NoValue{"the expression is nested too deeply"};
    }

    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

    ~Nesting() { --level_; }

   private:
    int& level_;
  };

  std::string_view rest() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
    return text_.substr(at_);
  }

  bool take(std::string_view token) {
    if (!rest().starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  [[noreturn]] void refuse() {
    if (rest().empty()) throw NoValue{"the expression is incomplete"};
    throw NoValue{formatted("invalid character at byte {}", at_)};
  }

  static double finite(double value) {
    if (!std::isfinite(value)) throw NoValue{"the result is too large or undefined"};
    return value;
  }

  double sum() {
    double value = product();
    while (true) {
      if (take("+")) {
        value = finite(value + product());
      } else if (take("-")) {
        value = finite(value - product());
      } else {
        return value;
      }
    }
  }

  double product() {
    double value = signed_power();
    while (true) {
      if (rest().starts_with("**")) return value;
      if (take("*")) {
        value = finite(value * signed_power());
      } else if (take("//")) {
        value = std::floor(divided(value, signed_power()));
      } else if (take("/")) {
        value = divided(value, signed_power());
      } else if (take("%")) {
        const double divisor = signed_power();
        value = finite(value - divisor * std::floor(divided(value, divisor)));
      } else {
        return value;
      }
    }
  }

  static double divided(double value, double divisor) {
    if (divisor == 0) throw NoValue{"division by zero"};
    return finite(value / divisor);
  }

  double signed_power() {
    const Nesting nesting(level_);
    if (take("-")) return -signed_power();
    if (take("+")) return signed_power();
    const double base = atom();
    if (take("**") || take("^")) return finite(std::pow(base, signed_power()));
    return base;
  }

  double atom() {
    if (take("(")) {
      const double value = sum();
      if (!take(")")) refuse();
      return value;
    }
    const std::string_view here = rest();
    if (!here.empty() && is_letter(here.front())) return named();
    double value = 0;
    const auto [end, code] = std::from_chars(here.data(), here.data() + here.size(), value);
    if (code == std::errc::result_out_of_range) throw NoValue{"a number is too large or too small"};
    if (code != std::errc{} || here.front() == '-') refuse();
    at_ += static_cast<std::size_t>(end - here.data());
    return finite(value);
  }

  double named() {
    const std::string_view here = rest();
    const auto end =
        std::ranges::find_if(here, [](char c) { return !is_letter(c) && !(c >= '0' && c <= '9'); });
    const std::string_view name = here.substr(0, static_cast<std::size_t>(end - here.begin()));
    at_ += name.size();
    if (name == "pi") return std::numbers::pi;
    if (name == "e") return std::numbers::e;
    const auto* function = std::ranges::find(kFunctions, name, &ExpressionFunction::name);
    if (function == kFunctions.end()) throw NoValue{formatted("unknown name {}", name)};
    if (!take("(")) refuse();
    Values values{sum()};
    while (take(",")) values.push_back(sum());
    if (!take(")")) refuse();
    if (values.size() < function->least || values.size() > function->most)
      throw NoValue{formatted("{} has a wrong number of arguments", name)};
    return finite(function->compute(values));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int level_ = 0;
};

}  // namespace

ExpressionResult evaluate_expression(std::string_view text) {
  if (text.size() > kMaxExpressionBytes)
    return {.error = formatted("the expression is longer than {} bytes", kMaxExpressionBytes)};
  const std::string plain = with_plain_signs(text);
  try {
    return {.value = ExpressionParser(plain).parse(), .error = ""};
  } catch (const NoValue& none) {
    return {.error = none.reason};
  }
}

std::string value_text(double value) {
  constexpr double kExactIntegers = 1e15;
  if (value == std::floor(value) && std::abs(value) < kExactIntegers)
    return cat(static_cast<std::int64_t>(value));
  return number_text(value);
}

}  // namespace trireme::reward
