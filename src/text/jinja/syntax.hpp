#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/lexer.hpp"
#include "text/jinja/value.hpp"

namespace trireme::text::jinja {

struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<JinjaExpression>;

/// An expression. The use of `name` and `parts` depends on the kind.
struct JinjaExpression {
  enum class Kind {
    constant,   // constant
    name,       // name
    list,       // parts
    dict,       // parts: key, value, key, value, ...
    unary,      // name: not, -, +; one part
    binary,     // name: + - * / // % ** ~ == != < <= > >= in, not in, and, or; two parts
    chain,      // comparisons a < b < c: parts, and `names` of the operators
    choice,     // parts: value, condition, other value (may be null)
    attribute,  // name; one part
    item,       // parts: object, key
    slice,      // parts: object, begin, end, step (may be null)
    call,       // parts: callee, arguments; named
    filter,     // name; parts: value, arguments; named
    test,       // name; parts: value, arguments; `negated`
  };

  Kind kind = Kind::constant;
  JinjaPlace place;
  std::string name = {};
  JinjaValue constant = {};
  std::vector<JinjaExpressionPtr> parts = {};
  std::vector<std::string> names = {};
  std::vector<std::pair<std::string, JinjaExpressionPtr>> named = {};
  bool negated = false;
};

struct JinjaStatement;
using JinjaBody = std::vector<JinjaStatement>;

struct JinjaBranch;

struct JinjaParameter {
  std::string name;
  JinjaExpressionPtr otherwise;  // null: the argument is undefined if it is absent
};

/// A statement, or text of the template.
struct JinjaStatement {
  enum class Kind {
    data,        // text
    output,      // value
    if_,         // branches; body: else
    for_,        // targets in value; condition; body; otherwise
    set,         // targets (or name.attribute) = value
    set_block,   // targets[0] = output of body
    macro,       // name, parameters, body
    generation,  // body
    break_,
    continue_,
  };

  Kind kind = Kind::data;
  JinjaPlace place;
  std::string text = {};  // data; name of a macro; attribute of a set
  std::vector<std::string> targets = {};
  JinjaExpressionPtr value = {};
  JinjaExpressionPtr condition = {};  // the filter of a loop
  std::vector<JinjaBranch> branches = {};
  std::vector<JinjaParameter> parameters = {};
  JinjaBody body = {};
  JinjaBody otherwise = {};  // else of a loop
};

struct JinjaBranch {
  JinjaExpressionPtr condition;
  JinjaBody body;
};

/// Parses a template. Constructs that are not supported, and names of filters, tests, functions and
/// methods that do not exist, are refused with line and column. Throws Error(data).
/// Source: the documentation of Jinja 3.1, "Template Designer Documentation".
JinjaBody parse_template(std::string_view source, std::string_view template_name);

}  // namespace trireme::text::jinja
