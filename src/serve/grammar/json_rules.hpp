#pragma once
#include <cstdint>
#include <optional>

#include "serve/grammar/byte_grammar.hpp"

namespace trireme::serve {

/// Adds the parts of JSON (RFC 8259) as rules to a grammar. Each rule is added when it is first
/// requested.
///
/// The grammar does not allow all of JSON, so that a model cannot continue forever. Between JSON
/// tokens it allows nothing, one blank, or a line end with up to 40 blanks or 8 tabs. Numbers have
/// at most 16 digits before and after the point and 2 digits in the exponent. Strings are UTF-8
/// without lone surrogates.
class JsonRules {
 public:
  explicit JsonRules(ByteGrammar& grammar) : grammar_(grammar) {}

  [[nodiscard]] const GrammarSequence& space();
  [[nodiscard]] const GrammarSequence& integer();
  [[nodiscard]] const GrammarSequence& number();
  /// Numbers of 0 or more, with or without a fraction.
  [[nodiscard]] const GrammarSequence& number_of_zero_or_more();
  /// One character of a string, escaped or not.
  [[nodiscard]] const GrammarSequence& character();
  [[nodiscard]] const GrammarSequence& text();
  [[nodiscard]] GrammarSequence text_of_length(std::int64_t least, std::int64_t most);
  [[nodiscard]] const GrammarSequence& boolean();
  [[nodiscard]] const GrammarSequence& null();
  /// Any value, any object and any array.
  [[nodiscard]] const GrammarSequence& value();
  [[nodiscard]] const GrammarSequence& object();
  [[nodiscard]] const GrammarSequence& array();

  /// Return an object with any number of members that have values of the form `value`, or an array
  /// of `least` to `most` items of the form `item` (most < 0: no upper limit).
  [[nodiscard]] GrammarSequence object_of(const GrammarSequence& value);
  [[nodiscard]] GrammarSequence array_of(const GrammarSequence& item, std::int64_t least,
                                         std::int64_t most);

 private:
  using Made = std::optional<GrammarSequence>;

  void make_values();

  ByteGrammar& grammar_;
  Made space_, integer_, unsigned_, number_, zero_or_more_, character_, text_, boolean_, null_;
  Made value_, object_, array_;
};

}  // namespace trireme::serve
