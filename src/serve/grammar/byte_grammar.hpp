#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme {

/// A set of byte values.
class ByteSet {
 public:
  ByteSet& add(unsigned char from, unsigned char to) {
    for (unsigned byte = from; byte <= to; ++byte)
      words_[byte / 64] |= std::uint64_t{1} << byte % 64;
    return *this;
  }

  [[nodiscard]] bool has(unsigned char byte) const {
    return (words_[byte / 64] >> byte % 64 & 1) != 0;
  }

 private:
  std::array<std::uint64_t, 4> words_{};
};

/// One of: a byte out of a set, a rule, the end of an alternative.
struct GrammarElement {
  enum class Kind : std::uint8_t { bytes, rule, end };

  Kind kind = Kind::end;
  std::uint32_t index = 0;  // of the set or the rule
};

/// A part of a rule: elements one after another.
using GrammarPiece = std::vector<GrammarElement>;

/// A context-free grammar over bytes, put together from the inside out.
///
/// Pieces are values: a piece may be used in several places. What `choice`, `optional`, `any_number`
/// and `repeated` return refers to rules that they add. Throws Error(usage) when it has more than
/// kMaxElements elements.
class ByteGrammar {
 public:
  static constexpr std::size_t kMaxElements = 50'000;

  ByteGrammar() : sets_(1) {}

  [[nodiscard]] GrammarPiece bytes(const ByteSet& set);
  [[nodiscard]] GrammarPiece literal(std::string_view text);
  /// Any of them; {} is nothing at all.
  [[nodiscard]] GrammarPiece choice(const std::vector<GrammarPiece>& alternatives);
  [[nodiscard]] GrammarPiece optional(const GrammarPiece& piece);
  [[nodiscard]] GrammarPiece any_number(const GrammarPiece& piece);
  /// `least` to `most` times; most < 0: any number from `least` on.
  [[nodiscard]] GrammarPiece repeated(const GrammarPiece& piece, std::int64_t least,
                                      std::int64_t most);

  /// A rule that is defined later, so that it can refer to itself.
  [[nodiscard]] std::uint32_t declare();
  void define(std::uint32_t rule, const std::vector<GrammarPiece>& alternatives);
  [[nodiscard]] static GrammarPiece of_rule(std::uint32_t rule);

  /// Whether some rule can begin with itself, so that no byte would ever be read.
  [[nodiscard]] bool has_left_recursion() const;

  /// Elements so far.
  [[nodiscard]] std::size_t size() const noexcept { return elements_.size(); }

  // What a reader of texts looks at.

  [[nodiscard]] const GrammarElement& element(std::uint32_t at) const { return elements_[at]; }

  [[nodiscard]] const ByteSet& set(std::uint32_t index) const { return sets_[index]; }

  /// Where each alternative of a rule begins among the elements.
  [[nodiscard]] const std::vector<std::uint32_t>& alternatives(std::uint32_t rule) const {
    return rules_[rule];
  }

 private:
  [[nodiscard]] std::vector<bool> rules_that_may_be_empty() const;

  std::vector<GrammarElement> elements_;
  std::vector<ByteSet> sets_;
  std::array<std::uint32_t, 256>
      single_{};  // the set of one byte; 0: not made yet, sets_[0] is spare
  std::vector<std::vector<std::uint32_t>> rules_;
};

/// `first`, then `second`.
[[nodiscard]] GrammarPiece operator+(GrammarPiece first, const GrammarPiece& second);

}  // namespace trireme
