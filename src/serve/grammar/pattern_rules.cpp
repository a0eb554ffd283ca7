#include "serve/grammar/pattern_rules.hpp"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "serve/grammar/character_set.hpp"
#include "serve/grammar/schema_values.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::serve {
namespace {

constexpr std::int64_t kNoLimit = -1;
constexpr std::int64_t kMostRepetitions = 100'000;

CharacterSet digits() {
  return CharacterSet().add('0', '9');
}

CharacterSet word_characters() {
  return digits().add('a', 'z').add('A', 'Z').add('_', '_');
}

CharacterSet line_ends() {
  return CharacterSet().add('\n', '\n').add('\r', '\r').add(0x2028, 0x2029);
}

CharacterSet blanks() {
  return CharacterSet()
      .add(line_ends())
      .add('\t', '\r')
      .add(' ', ' ')
      .add(0xA0, 0xA0)
      .add(0x1680, 0x1680)
      .add(0x2000, 0x200A)
      .add(0x202F, 0x202F)
      .add(0x205F, 0x205F)
      .add(0x3000, 0x3000)
      .add(0xFEFF, 0xFEFF);
}

/// A part of an expression. Repeating a part that may be empty would give a rule that begins with
/// itself.
struct Part {
  GrammarSequence sequence;
  bool may_be_empty = true;
};

class Reader {
 public:
  Reader(ByteGrammar& grammar, JsonRules& json, std::string_view pattern, const std::string& path)
      : grammar_(grammar), json_(json), path_(path) {
    for (std::size_t at = 0; at < pattern.size();) {
      std::size_t length = 0;
      characters_.push_back(text::utf8_decode(pattern.data() + at, length));
      at += length;
    }
  }

  GrammarSequence read() {
    const GrammarSequence around = grammar_.any_number(json_.character());
    std::vector<GrammarSequence> alternatives;
    do {
      const GrammarSequence before = take('^') ? GrammarSequence() : around;
      const GrammarSequence body = read_terms().sequence;
      const GrammarSequence after = take('$') ? GrammarSequence() : around;
      alternatives.push_back(before + body + after);
    } while (take('|'));
    if (at_ < characters_.size()) refuse("an unexpected ')' or '$'");
    const GrammarSequence quote = grammar_.literal("\"");
    return quote + grammar_.choice(alternatives) + quote;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw SchemaProblem{path_,
                        formatted("has {} at character {}, which is not supported", what, at_ + 1)};
  }

  [[nodiscard]] bool is_next(std::uint32_t character) const {
    return at_ < characters_.size() && characters_[at_] == character;
  }

  bool take(std::uint32_t character) {
    if (!is_next(character)) return false;
    ++at_;
    return true;
  }

  std::uint32_t next() {
    if (at_ == characters_.size()) refuse("an incomplete expression");
    return characters_[at_++];
  }

  /// Reads the terms up to the end of an alternative.
  Part read_terms() {
    Part whole;
    while (at_ < characters_.size() && !is_next('|') && !is_next(')') && !is_next('$')) {
      const Part term = read_repeated();
      whole.sequence = std::move(whole.sequence) + term.sequence;
      whole.may_be_empty = whole.may_be_empty && term.may_be_empty;
    }
    return whole;
  }

  Part read_repeated() {
    const std::size_t begin = at_;
    Part part = read_one();
    const auto counts = read_counts();
    if (!counts) return part;
    const auto& [least, most] = *counts;
    if (part.may_be_empty && most == kNoLimit) {
      at_ = begin;
      refuse("a repetition of something that may be empty");
    }
    if (most != kNoLimit && most < least) refuse("a repetition with a maximum below its minimum");
    if (part.sequence.size() > 1) part.sequence = grammar_.choice({part.sequence});
    return {grammar_.repeated(part.sequence, least, most), part.may_be_empty || least == 0};
  }

  /// Reads a quantifier as the minimum and the maximum.
  std::optional<std::pair<std::int64_t, std::int64_t>> read_counts() {
    std::pair<std::int64_t, std::int64_t> counts{0, kNoLimit};
    if (take('+')) {
      counts.first = 1;
    } else if (take('?')) {
      counts.second = 1;
    } else if (take('{')) {
      counts.first = read_count();
      if (!take(','))
        counts.second = counts.first;
      else if (!is_next('}'))
        counts.second = read_count();
      if (!take('}')) refuse("an incomplete quantifier");
    } else if (!take('*')) {
      return std::nullopt;
    }
    take('?');  // a lazy quantifier matches the same values
    return counts;
  }

  std::int64_t read_count() {
    std::int64_t count = 0;
    bool has_digit = false;
    for (; at_ < characters_.size() && characters_[at_] >= '0' && characters_[at_] <= '9'; ++at_) {
      count = 10 * count + static_cast<std::int64_t>(characters_[at_] - '0');
      has_digit = true;
      if (count > kMostRepetitions) refuse("a quantifier over 100000");
    }
    if (!has_digit) refuse("a quantifier without a number");
    return count;
  }

  /// Reads a character, a class or a group.
  Part read_one() {
    if (take('(')) return read_group();
    if (take('[')) return {character_of(read_class()), false};
    if (take('.')) return {character_of(line_ends().complement()), false};
    if (take('\\')) return {character_of(read_escape()), false};
    for (const char special : {'*', '+', '?', '{', '}', ']', '^'})
      if (is_next(static_cast<unsigned char>(special)))
        refuse(formatted("an unexpected '{}'", special));
    const std::uint32_t character = next();
    return {character_of(CharacterSet().add(character, character)), false};
  }

  Part read_group() {
    if (take('?') && !take(':')) {
      if (!take('<') || is_next('=') || is_next('!')) refuse("a lookaround or a flag");
      while (next() != '>') {
      }
    }
    std::vector<GrammarSequence> alternatives;
    bool may_be_empty = false;
    do {
      const Part part = read_terms();
      if (is_next('$')) refuse("'$' inside a group");
      may_be_empty = may_be_empty || part.may_be_empty;
      alternatives.push_back(part.sequence);
    } while (take('|'));
    if (!take(')')) refuse("a group without an end");
    return {grammar_.choice(alternatives), may_be_empty};
  }

  CharacterSet read_class() {
    const bool is_negated = take('^');
    CharacterSet set;
    while (!take(']')) {
      const CharacterSet first = read_class_member();
      const bool is_range =
          is_next('-') && at_ + 1 < characters_.size() && characters_[at_ + 1] != ']';
      if (!is_range) {
        set.add(first);
        continue;
      }
      ++at_;
      const auto from = single(first);
      const auto to = single(read_class_member());
      if (from > to) refuse("a class with a range in the wrong order");
      set.add(from, to);
    }
    return is_negated ? set.complement() : set;
  }

  CharacterSet read_class_member() {
    if (take('\\')) return take('b') ? CharacterSet().add('\b', '\b') : read_escape();
    const std::uint32_t character = next();
    return CharacterSet().add(character, character);
  }

  std::uint32_t single(const CharacterSet& set) const {
    const auto ranges = set.ranges();
    if (ranges.size() != 1 || ranges.front().first != ranges.front().second)
      refuse("a class with a range of classes");
    return ranges.front().first;
  }

  /// Reads an escape after the backslash.
  CharacterSet read_escape() {
    switch (const std::uint32_t character = next()) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return blanks();
      case 'S':
        return blanks().complement();
      case 't':
        return CharacterSet().add('\t', '\t');
      case 'n':
        return CharacterSet().add('\n', '\n');
      case 'v':
        return CharacterSet().add('\v', '\v');
      case 'f':
        return CharacterSet().add('\f', '\f');
      case 'r':
        return CharacterSet().add('\r', '\r');
      case 'x':
        return read_code(2);
      case 'u':
        return read_code(take('{') ? 0 : 4);
      default: {
        const bool is_letter = (character >= 'a' && character <= 'z') ||
                               (character >= 'A' && character <= 'Z') ||
                               (character >= '1' && character <= '9');
        if (is_letter) {
          --at_;
          refuse(formatted("the escape \\{}", static_cast<char>(character)));
        }
        const std::uint32_t meant = character == '0' ? 0 : character;
        return CharacterSet().add(meant, meant);
      }
    }
  }

  /// Reads a code point of `count` hexadecimal digits; 0: up to a closing brace.
  CharacterSet read_code(int count) {
    std::uint32_t code = 0;
    for (int i = 0; count == 0 ? !take('}') : i < count; ++i) {
      const std::uint32_t digit = next();
      if (digit >= '0' && digit <= '9')
        code = 16 * code + (digit - '0');
      else if ((digit | 0x20U) >= 'a' && (digit | 0x20U) <= 'f')
        code = 16 * code + ((digit | 0x20U) - 'a' + 10);
      else
        refuse("an invalid code point");
      if (code > kLastCharacter) refuse("an invalid code point");
    }
    return CharacterSet().add(code, code);
  }

  /// Returns a reference to the rule of a set. Equal sets share one rule.
  GrammarSequence character_of(const CharacterSet& set) {
    auto ranges = set.ranges();
    if (ranges.empty()) refuse("a class without characters");
    auto [found, is_new] = made_.try_emplace(std::move(ranges));
    if (is_new) found->second = json_character_of(grammar_, set);
    return found->second;
  }

  ByteGrammar& grammar_;
  JsonRules& json_;
  const std::string& path_;
  std::vector<std::uint32_t> characters_;
  std::size_t at_ = 0;
  std::map<std::vector<std::pair<std::uint32_t, std::uint32_t>>, GrammarSequence> made_;
};

}  // namespace

GrammarSequence strings_matching(ByteGrammar& grammar, JsonRules& json, std::string_view pattern,
                                 const std::string& path) {
  return Reader(grammar, json, pattern, path).read();
}

}  // namespace trireme::serve
