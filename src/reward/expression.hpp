#pragma once
#include <string>
#include <string_view>

namespace trireme::reward {

/// The value of an arithmetic expression, or the reason why it has none.
struct ExpressionResult {
  double value = 0;
  std::string error;  // "" if the expression has a value
};

/// Computes an expression in double precision. The text is data, never code.
///
///   numbers    12, 3.5, .5, 1e3
///   operators  + - * / // % and ** or ^ (to the right), unary + and -, parentheses, with the
///              precedence of Python; also the signs U+00D7, U+00F7, U+2212, U+FF08 and U+FF09
///   functions  abs, ceil, exp, floor, ln, log10, max, min, pow, round, sqrt
///   constants  pi, e
/// Limits: 1,000 bytes, nesting of 50, and finite values. The time is linear in the length.
ExpressionResult evaluate_expression(std::string_view text);

/// Returns the shortest text of a value: "3", "0.1", "1e+20".
std::string value_text(double value);

}  // namespace trireme::reward
