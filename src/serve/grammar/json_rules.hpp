#pragma once
#include <cstdint>
#include <optional>

#include "serve/grammar/byte_grammar.hpp"

namespace trireme {

/// The parts of JSON (RFC 8259) as pieces of one grammar, each made when it is first asked for.
///
/// Narrower than JSON where a model would not find an end: between tokens there is nothing, one
/// blank, or a line end with up to 40 blanks or 8 tabs; numbers have at most 16 digits before and
/// after the point and 2 in the exponent. Texts are UTF-8 and hold no lone surrogate.
class JsonRules {
 public:
  explicit JsonRules(ByteGrammar& grammar) : grammar_(grammar) {}

  [[nodiscard]] const GrammarPiece& space();
  [[nodiscard]] const GrammarPiece& integer();
  [[nodiscard]] const GrammarPiece& number();
  /// One of at least 0; a fraction is allowed.
  [[nodiscard]] const GrammarPiece& number_of_zero_or_more();
  /// A character of a text, escaped or not.
  [[nodiscard]] const GrammarPiece& character();
  [[nodiscard]] const GrammarPiece& text();
  [[nodiscard]] GrammarPiece text_of_length(std::int64_t least, std::int64_t most);
  [[nodiscard]] const GrammarPiece& boolean();
  [[nodiscard]] const GrammarPiece& null();
  /// Any value, any object, any list.
  [[nodiscard]] const GrammarPiece& value();
  [[nodiscard]] const GrammarPiece& object();
  [[nodiscard]] const GrammarPiece& array();

  /// An object of any number of members with values of `value`; a list of `least` to `most` (< 0:
  /// any number) of `item`.
  [[nodiscard]] GrammarPiece object_of(const GrammarPiece& value);
  [[nodiscard]] GrammarPiece array_of(const GrammarPiece& item, std::int64_t least,
                                      std::int64_t most);

 private:
  using Made = std::optional<GrammarPiece>;

  void make_values();

  ByteGrammar& grammar_;
  Made space_, integer_, unsigned_, number_, zero_or_more_, character_, text_, boolean_, null_;
  Made value_, object_, array_;
};

/// Integers in [least, most]; an absent limit is 18 digits long. Throws Error(usage) if there is
/// none.
GrammarPiece integers_between(ByteGrammar& grammar, std::optional<std::int64_t> least,
                              std::optional<std::int64_t> most);

}  // namespace trireme
