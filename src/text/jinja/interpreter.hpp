#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/jinja_template.hpp"
#include "text/jinja/syntax.hpp"

namespace trireme::text::jinja {

/// Runs one rendering of a template. Not thread-safe.
class Interpreter {
 public:
  Interpreter(std::string_view template_name, std::map<std::string, JinjaValue> variables);

  JinjaOutput run(const JinjaBody& body);

 private:
  using Frame = std::map<std::string, JinjaValue, std::less<>>;
  enum class Flow { next, break_, continue_ };

  // Statements (interpreter.cpp)
  Flow run_body(const JinjaBody& body);
  Flow run_statement(const JinjaStatement& statement);
  Flow run_loop(const JinjaStatement& loop);
  JinjaList loop_items(const JinjaStatement& loop);
  void set(const JinjaStatement& statement);
  void assign(const std::vector<std::string>& targets, JinjaValue value, JinjaPlace place);
  void define_macro(const JinjaStatement& macro);
  JinjaValue call_macro(const JinjaStatement& macro, const JinjaArguments& arguments);
  void generate(const JinjaStatement& statement);
  MarkedText capture(const JinjaBody& body);
  void write(const MarkedText& text, JinjaPlace place);

  // Expressions (expressions.cpp)
  JinjaValue evaluate(const JinjaExpression& node);
  JinjaValue evaluate_known(const JinjaExpression& node);
  JinjaValue variable(const JinjaExpression& node);
  JinjaValue unary(const JinjaExpression& node);
  JinjaValue binary(const JinjaExpression& node);
  JinjaValue chain(const JinjaExpression& node);
  JinjaValue item(const JinjaExpression& node);
  JinjaValue slice(const JinjaExpression& node);
  JinjaValue call(const JinjaExpression& node);
  JinjaArguments arguments(const JinjaExpression& node);

  [[noreturn]] void refuse(JinjaPlace place, std::string_view reason) const;
  void count_step(JinjaPlace place);

  std::string template_name_;
  std::vector<Frame> frames_;  // the innermost scope is last
  MarkedText out_;
  std::vector<std::pair<std::size_t, std::size_t>> generations_;
  std::int64_t num_steps_ = 0;
  int depth_ = 0;  // nesting of macro calls
};

/// Adds range, namespace, dict and raise_exception to the variables.
void add_jinja_functions(std::map<std::string, JinjaValue>& variables);

}  // namespace trireme::text::jinja
