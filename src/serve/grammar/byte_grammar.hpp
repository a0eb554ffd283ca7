#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::serve {
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

/// One element of a rule: a byte from a set, a reference to a rule, or the end of an alternative.
struct GrammarElement {
  enum class Kind : std::uint8_t { bytes, rule, end };

  Kind kind = Kind::end;
  std::uint32_t index = 0;  // index of the set or of the rule
};

/// A sequence of elements that is a part of a rule.
using GrammarSequence = std::vector<GrammarElement>;

/// A context-free grammar over bytes. Build the inner parts first, then the parts that use them.
///
/// A GrammarSequence is a value and may be used several times. `choice`, `optional`, `any_number`
/// and `repeated` add rules to the grammar and return references to the rules. Functions throw
/// Error(usage) if the grammar would get more than kMaxElements elements.
class ByteGrammar {
 public:
  static constexpr std::size_t kMaxElements = 50'000;

  ByteGrammar() : sets_(1) {}

  [[nodiscard]] GrammarSequence bytes(const ByteSet& set);
  [[nodiscard]] GrammarSequence literal(std::string_view text);
  /// Returns a sequence that matches any one of the alternatives; {} matches the empty text.
  [[nodiscard]] GrammarSequence choice(const std::vector<GrammarSequence>& alternatives);
  [[nodiscard]] GrammarSequence optional(const GrammarSequence& sequence);
  [[nodiscard]] GrammarSequence any_number(const GrammarSequence& sequence);
  /// Returns `least` to `most` repetitions. If most < 0, there is no upper limit.
  [[nodiscard]] GrammarSequence repeated(const GrammarSequence& sequence, std::int64_t least,
                                         std::int64_t most);

  /// Adds a rule without a definition, so that other rules and the rule itself can refer to it.
  /// Call define() later.
  [[nodiscard]] std::uint32_t declare();
  void define(std::uint32_t rule, const std::vector<GrammarSequence>& alternatives);
  [[nodiscard]] static GrammarSequence of_rule(std::uint32_t rule);

  /// Returns true if a rule can begin with itself. A reader of such a grammar would never stop.
  [[nodiscard]] bool has_left_recursion() const;

  [[nodiscard]] std::size_t size() const noexcept { return elements_.size(); }

  // The following functions give a GrammarReader access to the elements.

  [[nodiscard]] const GrammarElement& element(std::uint32_t at) const { return elements_[at]; }

  [[nodiscard]] const ByteSet& set(std::uint32_t index) const { return sets_[index]; }

  /// Returns the index of the first element of each alternative of a rule.
  [[nodiscard]] const std::vector<std::uint32_t>& alternatives(std::uint32_t rule) const {
    return rules_[rule];
  }

 private:
  [[nodiscard]] std::vector<bool> rules_that_may_be_empty() const;

  std::vector<GrammarElement> elements_;
  std::vector<ByteSet> sets_;
  // index of the set that contains one byte; 0: not created yet (sets_[0] is unused)
  std::array<std::uint32_t, 256> single_{};
  std::vector<std::vector<std::uint32_t>> rules_;
};

[[nodiscard]] GrammarSequence operator+(GrammarSequence first, const GrammarSequence& second);

}  // namespace trireme::serve
