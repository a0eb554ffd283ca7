#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "text/jinja/interpreter.hpp"
#include "text/jinja/library.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;
constexpr std::size_t kMaxRepeatedBytes = std::size_t{1} << 20;

[[noreturn]] void refuse_operands(std::string_view sign, const JinjaValue& left,
                                  const JinjaValue& right) {
  const auto shown = [](const JinjaValue& value) { return std::string(value.type_name()); };
  jinja_fail(cat("'", sign, "' is not defined for ", shown(left), " and ", shown(right)));
}

std::int64_t floor_divided(std::int64_t left, std::int64_t right) {
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

JinjaValue integer_result(std::string_view sign, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool overflow = false;
  if (sign == "+") overflow = __builtin_add_overflow(left, right, &result);
  if (sign == "-") overflow = __builtin_sub_overflow(left, right, &result);
  if (sign == "*") overflow = __builtin_mul_overflow(left, right, &result);
  if (sign == "//" || sign == "%") {
    if (right == 0) jinja_fail("division by zero");
    if (left == INT64_MIN && right == -1) jinja_fail("the result is too large");
    result = floor_divided(left, right);
    if (sign == "%") result = left - result * right;
  }
  if (overflow) jinja_fail("the result is too large");
  return result;
}

JinjaValue real_result(std::string_view sign, double left, double right) {
  if (sign == "+") return left + right;
  if (sign == "-") return left - right;
  if (sign == "*") return left * right;
  if (sign == "**") return std::pow(left, right);
  if (right == 0) jinja_fail("division by zero");
  if (sign == "/") return left / right;
  if (sign == "//") return std::floor(left / right);
  return left - std::floor(left / right) * right;
}

JinjaValue whole_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent && base != 1; ++i) {
    if (i > 64 || __builtin_mul_overflow(result, base, &result))
      jinja_fail("the result is too large");
  }
  return result;
}

JinjaValue repeated(const MarkedText& text, std::int64_t times) {
  MarkedText result;
  for (std::int64_t i = 0; i < times; ++i) {
    if (result.size() + text.size() > kMaxRepeatedBytes) jinja_fail("the text is too long");
    result.append(text);
    if (text.empty()) break;
  }
  return result;
}

JinjaValue arithmetic(std::string_view sign, const JinjaValue& left, const JinjaValue& right) {
  const MarkedText* text = left.as_text();
  if (sign == "+" && text != nullptr && right.as_text() != nullptr)
    return MarkedText(*text).append(*right.as_text());
  if (sign == "*" && text != nullptr && right.integer()) return repeated(*text, *right.integer());
  if (sign == "*" && right.as_text() != nullptr && left.integer())
    return repeated(*right.as_text(), *left.integer());
  if (sign == "+" && left.as_list() != nullptr && right.as_list() != nullptr) {
    JinjaList list = *left.as_list();
    list.insert(list.end(), right.as_list()->begin(), right.as_list()->end());
    return list;
  }
  if (!left.number() || !right.number()) refuse_operands(sign, left, right);
  const bool whole = left.integer() && right.integer();
  if (whole && sign == "**" && *right.integer() >= 0)
    return whole_power(*left.integer(), *right.integer());
  if (whole && sign != "/" && sign != "**")
    return integer_result(sign, *left.integer(), *right.integer());
  return real_result(sign, *left.number(), *right.number());
}

bool compared(std::string_view sign, const JinjaValue& left, const JinjaValue& right) {
  if (sign == "==") return left == right;
  if (sign == "!=") return !(left == right);
  if (sign == "in") return jinja_contains(right, left);
  if (sign == "not in") return !jinja_contains(right, left);
  const int order = jinja_order(left, right);
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

/// Returns the positions that Python's slice selects of `size` items.
std::vector<std::size_t> sliced(std::int64_t size, std::optional<std::int64_t> begin,
                                std::optional<std::int64_t> end, std::int64_t step) {
  if (step == 0) jinja_fail("the step of a slice is 0");
  const auto bound = [&](std::int64_t at) {
    if (at < 0) at += size;
    return step > 0 ? std::clamp<std::int64_t>(at, 0, size)
                    : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  const std::int64_t from = begin ? bound(*begin) : step > 0 ? 0 : size - 1;
  const std::int64_t to = end ? bound(*end) : step > 0 ? size : -1;
  std::vector<std::size_t> positions;
  for (std::int64_t at = from; step > 0 ? at < to : at > to; at += step)
    positions.push_back(static_cast<std::size_t>(at));
  return positions;
}

JinjaValue range_of(const JinjaArguments& given) {
  std::vector<std::int64_t> numbers;
  for (const JinjaValue& value : given.positional) {
    if (!value.integer()) jinja_fail("range() takes integers");
    numbers.push_back(*value.integer());
  }
  if (numbers.empty() || numbers.size() > 3) jinja_fail("range() takes 1 to 3 integers");
  const std::int64_t begin = numbers.size() == 1 ? 0 : numbers[0];
  const std::int64_t end = numbers.size() == 1 ? numbers[0] : numbers[1];
  const std::int64_t step = numbers.size() == 3 ? numbers[2] : 1;
  if (step == 0) jinja_fail("the step of range() is 0");
  JinjaList list;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
    if (std::ssize(list) == kMaxRange) jinja_fail("range() has too many values");
    list.emplace_back(at);
  }
  return list;
}

/// Sets the value of a key. A key that exists keeps its position.
void put_member(JinjaDict& dict, const JinjaValue& key, const JinjaValue& value) {
  const auto found =
      std::ranges::find_if(dict, [&](const auto& member) { return member.first == key; });
  if (found == dict.end()) {
    dict.emplace_back(key, value);
  } else {
    found->second = value;
  }
}

/// Returns the dict of a first argument (if any) and the named arguments.
JinjaDict members_of(const JinjaArguments& given) {
  JinjaDict dict;
  if (!given.positional.empty()) {
    if (given.positional.size() > 1 || given.positional[0].as_dict() == nullptr)
      jinja_fail("dict() and namespace() take one dict and named arguments");
    dict = *given.positional[0].as_dict();
  }
  for (const auto& [name, value] : given.named) put_member(dict, JinjaValue::text(name), value);
  return dict;
}

}  // namespace

void add_jinja_functions(std::map<std::string, JinjaValue>& known) {
  std::map<std::string, JinjaValue> variables;
  variables["range"] = JinjaFunction(range_of);
  variables["dict"] =
      JinjaFunction([](const JinjaArguments& given) -> JinjaValue { return members_of(given); });
  variables["namespace"] = JinjaFunction([](const JinjaArguments& given) -> JinjaValue {
    auto space = std::make_shared<JinjaNamespace>();  // shared by the copies of the variable
    for (const auto& [name, value] : members_of(given))
      space->attributes[name.str().bytes()] = value;
    return space;
  });
  variables["raise_exception"] = JinjaFunction([](const JinjaArguments& given) -> JinjaValue {
    jinja_fail(cat("the template refuses the conversation: ",
                   given.positional.empty() ? std::string() : given.positional[0].str().bytes()));
  });
  known.merge(variables);  // variables of the caller hide functions
}

JinjaValue Interpreter::evaluate(const JinjaExpression& node) {
  count_step(node.place);
  try {
    return evaluate_known(node);
  } catch (const JinjaFailure& failure) {
    refuse(node.place, failure.reason);
  }
}

JinjaValue Interpreter::evaluate_known(const JinjaExpression& node) {
  using enum JinjaExpression::Kind;
  switch (node.kind) {
    case constant:
      return node.constant;
    case name:
      return variable(node);
    case list: {
      JinjaList values;
      for (const auto& part : node.parts) values.push_back(evaluate(*part));
      return values;
    }
    case dict: {
      JinjaDict values;
      for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2)
        put_member(values, evaluate(*node.parts[i]), evaluate(*node.parts[i + 1]));
      return values;
    }
    case JinjaExpression::Kind::unary:
      return this->unary(node);
    case JinjaExpression::Kind::binary:
      return this->binary(node);
    case JinjaExpression::Kind::chain:
      return this->chain(node);
    case choice:
      if (evaluate(*node.parts[1]).is_true()) return evaluate(*node.parts[0]);
      return node.parts[2] ? evaluate(*node.parts[2])
                           : JinjaValue::undefined("the value of an if without else");
    case attribute:
      return attribute_of(evaluate(*node.parts[0]), node.name);
    case JinjaExpression::Kind::item:
      return this->item(node);
    case JinjaExpression::Kind::slice:
      return this->slice(node);
    case JinjaExpression::Kind::call:
      return this->call(node);
    case filter:
      return apply_filter(node.name, evaluate(*node.parts[0]), arguments(node));
    case test:
      return apply_test(node.name, evaluate(*node.parts[0]), arguments(node)) != node.negated;
  }
  return {};
}

JinjaValue Interpreter::variable(const JinjaExpression& node) {
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
    if (const auto found = frame->find(node.name); found != frame->end()) return found->second;
  }
  return JinjaValue::undefined(node.name);
}

JinjaValue Interpreter::unary(const JinjaExpression& node) {
  const JinjaValue value = evaluate(*node.parts[0]);
  if (node.name == "not") return !value.is_true();
  if (!value.number()) jinja_fail(cat("'", node.name, "' is not defined for ", value.type_name()));
  if (const auto whole = value.integer())
    return node.name == "-" ? integer_result("-", 0, *whole) : JinjaValue(*whole);
  return node.name == "-" ? -*value.number() : *value.number();
}

JinjaValue Interpreter::binary(const JinjaExpression& node) {
  JinjaValue left = evaluate(*node.parts[0]);
  if (node.name == "and") return left.is_true() ? evaluate(*node.parts[1]) : left;
  if (node.name == "or") return left.is_true() ? left : evaluate(*node.parts[1]);
  const JinjaValue right = evaluate(*node.parts[1]);
  if (node.name == "~") return left.str().append(right.str());
  return arithmetic(node.name, left, right);
}

JinjaValue Interpreter::chain(const JinjaExpression& node) {
  JinjaValue left = evaluate(*node.parts[0]);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    JinjaValue right = evaluate(*node.parts[i + 1]);
    if (!compared(node.names[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

JinjaValue Interpreter::item(const JinjaExpression& node) {
  const JinjaValue object = evaluate(*node.parts[0]);
  const JinjaValue key = evaluate(*node.parts[1]);
  if (object.is_undefined()) (void)attribute_of(object, key.str().bytes());  // throws
  if (const JinjaDict* dict = object.as_dict()) {
    const auto found =
        std::ranges::find_if(*dict, [&](const auto& member) { return member.first == key; });
    if (found != dict->end()) return found->second;
  } else if (const auto index = key.integer();
             index && (object.as_list() != nullptr || object.as_text() != nullptr)) {
    const JinjaList items = object.items();
    const std::int64_t at = *index < 0 ? *index + std::ssize(items) : *index;
    if (at < 0 || at >= std::ssize(items)) return JinjaValue::undefined("an item out of range");
    return items[static_cast<std::size_t>(at)];
  }
  return key.as_text() != nullptr ? attribute_of(object, key.as_text()->bytes())
                                  : JinjaValue::undefined(key.str().bytes());
}

JinjaValue Interpreter::slice(const JinjaExpression& node) {
  const JinjaValue object = evaluate(*node.parts[0]);
  const auto bound = [&](std::size_t part) -> std::optional<std::int64_t> {
    if (!node.parts[part]) return std::nullopt;
    const JinjaValue value = evaluate(*node.parts[part]);
    if (value.is_none()) return std::nullopt;
    if (!value.integer()) jinja_fail("the bounds of a slice must be integers");
    return value.integer();
  };
  if (object.as_list() == nullptr && object.as_text() == nullptr)
    jinja_fail(cat(object.type_name(), " has no slices"));
  const JinjaList items = object.items();
  JinjaList chosen;
  for (const std::size_t at : sliced(std::ssize(items), bound(1), bound(2), bound(3).value_or(1)))
    chosen.push_back(items[at]);
  if (object.as_list() != nullptr) return chosen;
  MarkedText text;
  for (const JinjaValue& character : chosen) text.append(*character.as_text());
  return text;
}

JinjaArguments Interpreter::arguments(const JinjaExpression& node) {
  JinjaArguments given;
  for (std::size_t i = 1; i < node.parts.size(); ++i)
    given.positional.push_back(evaluate(*node.parts[i]));
  for (const auto& [name, part] : node.named) given.named.emplace_back(name, evaluate(*part));
  return given;
}

JinjaValue Interpreter::call(const JinjaExpression& node) {
  const JinjaExpression& callee = *node.parts[0];
  JinjaValue function;
  if (callee.kind == JinjaExpression::Kind::attribute) {
    const JinjaValue object = evaluate(*callee.parts[0]);
    const auto method = method_of(object, callee.name);
    function = method ? *method : attribute_of(object, callee.name);
  } else {
    function = evaluate(callee);
  }
  if (function.is_undefined() && callee.kind == JinjaExpression::Kind::name)
    jinja_fail(cat("the function ", callee.name, "() does not exist"));
  if (function.as_function() == nullptr) jinja_fail(cat(function.type_name(), " cannot be called"));
  return (*function.as_function())(arguments(node));
}

}  // namespace trireme::text::jinja
