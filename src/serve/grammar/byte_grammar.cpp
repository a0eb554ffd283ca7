#include "serve/grammar/byte_grammar.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trireme::serve {

using Kind = GrammarElement::Kind;

GrammarSequence operator+(GrammarSequence first, const GrammarSequence& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

GrammarSequence ByteGrammar::bytes(const ByteSet& set) {
  sets_.push_back(set);
  return {{Kind::bytes, static_cast<std::uint32_t>(sets_.size() - 1)}};
}

GrammarSequence ByteGrammar::literal(std::string_view text) {
  if (text.size() > kMaxElements)
    fail(ErrorKind::usage, "The schema is too large. Make it smaller.");
  GrammarSequence sequence;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t& set = single_[byte];
    if (set == 0) set = bytes(ByteSet().add(byte, byte)).front().index;
    sequence.push_back({Kind::bytes, set});
  }
  return sequence;
}

GrammarSequence ByteGrammar::choice(const std::vector<GrammarSequence>& alternatives) {
  const std::uint32_t rule = declare();
  define(rule, alternatives);
  return of_rule(rule);
}

GrammarSequence ByteGrammar::optional(const GrammarSequence& sequence) {
  return choice({sequence, {}});
}

GrammarSequence ByteGrammar::any_number(const GrammarSequence& sequence) {
  const std::uint32_t rule = declare();
  define(rule, {sequence + of_rule(rule), {}});
  return of_rule(rule);
}

GrammarSequence ByteGrammar::repeated(const GrammarSequence& sequence, std::int64_t least,
                                      std::int64_t most) {
  const auto size = static_cast<std::int64_t>(sequence.size() + 2);
  if (std::max(least, most) > static_cast<std::int64_t>(kMaxElements) / size)
    fail(ErrorKind::usage, "A repetition of {} times is too large. Lower the limits in the schema.",
         std::max(least, most));
  GrammarSequence rest = most < 0 ? any_number(sequence) : GrammarSequence();
  for (std::int64_t i = least; i < most; ++i) rest = optional(sequence + rest);
  GrammarSequence whole;
  for (std::int64_t i = 0; i < least; ++i)
    whole.insert(whole.end(), sequence.begin(), sequence.end());
  return whole + rest;
}

std::uint32_t ByteGrammar::declare() {
  rules_.emplace_back();
  return static_cast<std::uint32_t>(rules_.size() - 1);
}

void ByteGrammar::define(std::uint32_t rule, const std::vector<GrammarSequence>& alternatives) {
  for (const GrammarSequence& sequence : alternatives) {
    if (elements_.size() + sequence.size() >= kMaxElements)
      fail(ErrorKind::usage, "The schema is too large. Make it smaller.");
    rules_[rule].push_back(static_cast<std::uint32_t>(elements_.size()));
    elements_.insert(elements_.end(), sequence.begin(), sequence.end());
    elements_.push_back({Kind::end, 0});
  }
}

GrammarSequence ByteGrammar::of_rule(std::uint32_t rule) {
  return {{Kind::rule, rule}};
}

std::vector<bool> ByteGrammar::rules_that_may_be_empty() const {
  std::vector<bool> empty(rules_.size(), false);
  const auto may_be_empty = [&](std::uint32_t at) {
    while (elements_[at].kind == Kind::rule && empty[elements_[at].index]) ++at;
    return elements_[at].kind == Kind::end;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
      if (empty[rule] || std::none_of(rules_[rule].begin(), rules_[rule].end(), may_be_empty))
        continue;
      empty[rule] = true;
      changed = true;
    }
  }
  return empty;
}

bool ByteGrammar::has_left_recursion() const {
  const std::vector<bool> empty = rules_that_may_be_empty();
  // for each rule, the rules with which it can begin
  std::vector<std::vector<std::uint32_t>> first(rules_.size());
  for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
    for (std::uint32_t at : rules_[rule]) {
      for (; elements_[at].kind == Kind::rule; ++at) {
        first[rule].push_back(elements_[at].index);
        if (!empty[elements_[at].index]) break;
      }
    }
  }
  // Depth-first search without recursion. If the search reaches a rule that is still open, the rule
  // begins with itself.
  enum class Visit : std::uint8_t { no, open, done };
  std::vector<Visit> visits(rules_.size(), Visit::no);
  for (std::uint32_t root = 0; root < rules_.size(); ++root) {
    std::vector<std::pair<std::uint32_t, std::size_t>> path;
    if (visits[root] == Visit::no) path.emplace_back(root, 0);
    while (!path.empty()) {
      const auto [rule, next] = path.back();
      visits[rule] = Visit::open;
      if (next == first[rule].size()) {
        visits[rule] = Visit::done;
        path.pop_back();
        continue;
      }
      ++path.back().second;
      const std::uint32_t begun = first[rule][next];
      if (visits[begun] == Visit::open) return true;
      if (visits[begun] == Visit::no) path.emplace_back(begun, 0);
    }
  }
  return false;
}

}  // namespace trireme::serve
