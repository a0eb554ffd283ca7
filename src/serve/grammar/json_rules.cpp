#include "serve/grammar/json_rules.hpp"

#include <string_view>

#include "serve/grammar/character_set.hpp"

namespace trireme::serve {
namespace {

ByteSet one_of(std::string_view characters) {
  ByteSet set;
  for (const char c : characters)
    set.add(static_cast<unsigned char>(c), static_cast<unsigned char>(c));
  return set;
}

ByteSet span_of(unsigned char from, unsigned char to) {
  return ByteSet().add(from, to);
}

}  // namespace

const GrammarSequence& JsonRules::space() {
  if (space_) return *space_;
  const GrammarSequence blank = grammar_.literal(" ");
  const GrammarSequence indent = grammar_.choice(
      {grammar_.repeated(blank, 0, 40), grammar_.repeated(grammar_.literal("\t"), 1, 8)});
  return space_.emplace(grammar_.choice({{}, blank, grammar_.literal("\n") + indent}));
}

const GrammarSequence& JsonRules::integer() {
  if (integer_) return *integer_;
  const GrammarSequence digit = grammar_.bytes(span_of('0', '9'));
  unsigned_ = grammar_.choice(
      {grammar_.literal("0"), grammar_.bytes(span_of('1', '9')) + grammar_.repeated(digit, 0, 15)});
  return integer_.emplace(grammar_.optional(grammar_.literal("-")) + *unsigned_);
}

const GrammarSequence& JsonRules::number_of_zero_or_more() {
  if (zero_or_more_) return *zero_or_more_;
  (void)integer();
  const GrammarSequence digit = grammar_.bytes(span_of('0', '9'));
  const GrammarSequence exponent = grammar_.bytes(one_of("eE")) +
                                   grammar_.optional(grammar_.bytes(one_of("+-"))) +
                                   grammar_.repeated(digit, 1, 2);
  return zero_or_more_.emplace(
      *unsigned_ + grammar_.optional(grammar_.literal(".") + grammar_.repeated(digit, 1, 16)) +
      grammar_.optional(exponent));
}

const GrammarSequence& JsonRules::number() {
  if (number_) return *number_;
  const GrammarSequence size = number_of_zero_or_more();
  return number_.emplace(grammar_.optional(grammar_.literal("-")) + size);
}

const GrammarSequence& JsonRules::character() {
  if (character_) return *character_;
  const GrammarSequence hex = grammar_.bytes(span_of('0', '9').add('a', 'f').add('A', 'F'));
  const GrammarSequence code = grammar_.choice(
      {grammar_.bytes(span_of('0', '9').add('a', 'c').add('A', 'C').add('e', 'f').add('E', 'F')) +
           hex + hex + hex,
       grammar_.bytes(one_of("dD")) + grammar_.bytes(span_of('0', '7')) + hex + hex});
  const GrammarSequence escape =
      grammar_.literal("\\") +
      grammar_.choice({grammar_.bytes(one_of("\"\\/bfnrt")), grammar_.literal("u") + code});
  const GrammarSequence unescaped = json_character_of(
      grammar_, CharacterSet().add(' ', '!').add('#', '[').add(']', kLastCharacter));
  return character_.emplace(grammar_.choice({unescaped, escape}));
}

const GrammarSequence& JsonRules::text() {
  if (text_) return *text_;
  return text_.emplace(grammar_.choice({text_of_length(0, -1)}));
}

GrammarSequence JsonRules::text_of_length(std::int64_t least, std::int64_t most) {
  const GrammarSequence quote = grammar_.literal("\"");
  return quote + grammar_.repeated(character(), least, most) + quote;
}

const GrammarSequence& JsonRules::boolean() {
  if (boolean_) return *boolean_;
  return boolean_.emplace(grammar_.choice({grammar_.literal("true"), grammar_.literal("false")}));
}

const GrammarSequence& JsonRules::null() {
  if (null_) return *null_;
  return null_.emplace(grammar_.literal("null"));
}

GrammarSequence JsonRules::object_of(const GrammarSequence& value) {
  const GrammarSequence member = text() + grammar_.literal(":") + space() + value;
  const GrammarSequence more = grammar_.literal(",") + space() + member;
  const GrammarSequence members = member + grammar_.any_number(more) + space();
  return grammar_.literal("{") + space() + grammar_.optional(members) + grammar_.literal("}");
}

GrammarSequence JsonRules::array_of(const GrammarSequence& item, std::int64_t least,
                                    std::int64_t most) {
  const GrammarSequence close = grammar_.literal("]");
  const GrammarSequence open = grammar_.literal("[") + space();
  if (most == 0) return open + close;
  const GrammarSequence more = grammar_.literal(",") + space() + item;
  const GrammarSequence items =
      item + grammar_.repeated(more, least > 0 ? least - 1 : 0, most < 0 ? -1 : most - 1) + space();
  return open + (least > 0 ? items : grammar_.optional(items)) + close;
}

void JsonRules::make_values() {
  const std::uint32_t value = grammar_.declare();
  value_ = ByteGrammar::of_rule(value);
  object_ = grammar_.choice({object_of(*value_)});
  array_ = grammar_.choice({array_of(*value_, 0, -1)});
  grammar_.define(value, {*object_, *array_, text(), number(), boolean(), null()});
}

const GrammarSequence& JsonRules::value() {
  if (!value_) make_values();
  return *value_;
}

const GrammarSequence& JsonRules::object() {
  if (!object_) make_values();
  return *object_;
}

const GrammarSequence& JsonRules::array() {
  if (!array_) make_values();
  return *array_;
}

}  // namespace trireme::serve
