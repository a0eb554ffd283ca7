#pragma once
#include <cstdint>
#include <optional>

#include "serve/grammar/byte_grammar.hpp"

namespace trireme::serve {

/// Returns the integers in [least, most]. A missing limit means at most 18 digits. Throws
/// Error(usage) if the range is empty.
GrammarSequence integers_between(ByteGrammar& grammar, std::optional<std::int64_t> least,
                                 std::optional<std::int64_t> most);

/// A limit of a range of numbers.
struct NumberLimit {
  double value = 0;
  bool is_exclusive = false;  // the limit itself is outside the range
};

/// Returns the numbers between two limits, without exponents, with at most 16 digits before the
/// point and 16 after it. Throws Error(usage) if no such number exists or if a limit has more than
/// 15 digits before the point.
GrammarSequence numbers_between(ByteGrammar& grammar, const std::optional<NumberLimit>& least,
                                const std::optional<NumberLimit>& most);

}  // namespace trireme::serve
