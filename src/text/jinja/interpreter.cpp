#include "text/jinja/interpreter.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace trireme::text::jinja {
namespace {

/// Limits against templates that never end.
constexpr std::int64_t kMaxSteps = 2'000'000;
constexpr std::size_t kMaxOutputBytes = std::size_t{256} << 20;
constexpr int kMaxMacroDepth = 64;

bool holds_generation(const JinjaBody& body) {
  return std::ranges::any_of(body, [](const JinjaStatement& one) {
    return one.kind == JinjaStatement::Kind::generation || holds_generation(one.body) ||
           holds_generation(one.otherwise) ||
           std::ranges::any_of(one.branches, [](const JinjaBranch& branch) {
             return holds_generation(branch.body);
           });
  });
}

/// Returns the variable `loop` for item `at`.
JinjaValue loop_variable(const JinjaList& items, std::size_t at) {
  const auto text = [](const char* name) { return JinjaValue::text(name); };
  const auto number = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  const std::size_t size = items.size();
  const JinjaFunction cycle = [at](const JinjaArguments& given) {
    if (given.positional.empty()) jinja_fail("loop.cycle() needs values");
    return given.positional[at % given.positional.size()];
  };
  return JinjaDict{
      {text("index"), number(at + 1)},
      {text("index0"), number(at)},
      {text("revindex"), number(size - at)},
      {text("revindex0"), number(size - at - 1)},
      {text("first"), at == 0},
      {text("last"), at + 1 == size},
      {text("length"), number(size)},
      {text("depth"), std::int64_t{1}},
      {text("cycle"), cycle},
      {text("previtem"), at == 0 ? JinjaValue::undefined("loop.previtem") : items[at - 1]},
      {text("nextitem"), at + 1 == size ? JinjaValue::undefined("loop.nextitem") : items[at + 1]}};
}

}  // namespace

Interpreter::Interpreter(std::string_view template_name,
                         std::map<std::string, JinjaValue> variables)
    : template_name_(template_name) {
  add_jinja_functions(variables);
  frames_.emplace_back(variables.begin(), variables.end());
  frames_.emplace_back();
}

JinjaOutput Interpreter::run(const JinjaBody& body) {
  run_body(body);
  return {std::move(out_), std::move(generations_)};
}

void Interpreter::refuse(JinjaPlace place, std::string_view reason) const {
  refuse_template(template_name_, place, reason);
}

void Interpreter::count_step(JinjaPlace place) {
  if (++num_steps_ > kMaxSteps) refuse(place, "the template takes too many steps");
}

void Interpreter::write(const MarkedText& text, JinjaPlace place) {
  if (out_.size() + text.size() > kMaxOutputBytes) refuse(place, "the output is too long");
  out_.append(text);
}

Interpreter::Flow Interpreter::run_body(const JinjaBody& body) {
  for (const JinjaStatement& statement : body) {
    count_step(statement.place);
    const Flow flow = run_statement(statement);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_statement(const JinjaStatement& statement) {
  using enum JinjaStatement::Kind;
  switch (statement.kind) {
    case data:
      write(MarkedText::of_template(statement.text), statement.place);
      break;
    case output: {
      const JinjaValue value = evaluate(*statement.value);
      try {
        write(value.str(), statement.place);
      } catch (const JinjaFailure& failure) {
        refuse(statement.place, failure.reason);
      }
      break;
    }
    case if_:
      for (const JinjaBranch& branch : statement.branches) {
        if (evaluate(*branch.condition).is_true()) return run_body(branch.body);
      }
      return run_body(statement.body);
    case for_:
      return run_loop(statement);
    case set:
      this->set(statement);
      break;
    case set_block:
      frames_.back()[statement.targets.front()] = capture(statement.body);
      break;
    case macro:
      define_macro(statement);
      break;
    case generation:
      generate(statement);
      break;
    case break_:
      return Flow::break_;
    case continue_:
      return Flow::continue_;
  }
  return Flow::next;
}

/// Returns the items of a loop that pass its filter.
JinjaList Interpreter::loop_items(const JinjaStatement& loop) {
  const JinjaValue value = evaluate(*loop.value);
  JinjaList items;
  try {
    items = value.items();
  } catch (const JinjaFailure& failure) {
    refuse(loop.value->place, failure.reason);
  }
  if (!loop.condition) return items;
  JinjaList kept;
  for (JinjaValue& item : items) {
    count_step(loop.place);
    frames_.emplace_back();
    assign(loop.targets, item, loop.place);
    const bool keep = evaluate(*loop.condition).is_true();
    frames_.pop_back();
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const JinjaStatement& loop) {
  const JinjaList items = loop_items(loop);
  for (std::size_t i = 0; i < items.size(); ++i) {
    count_step(loop.place);
    frames_.emplace_back();
    frames_.back()["loop"] = loop_variable(items, i);
    assign(loop.targets, items[i], loop.place);
    const Flow flow = run_body(loop.body);
    frames_.pop_back();
    if (flow == Flow::break_) return Flow::next;
  }
  if (!items.empty() || loop.otherwise.empty()) return Flow::next;
  frames_.emplace_back();
  const Flow flow = run_body(loop.otherwise);
  frames_.pop_back();
  return flow;
}

void Interpreter::assign(const std::vector<std::string>& targets, JinjaValue value,
                         JinjaPlace place) {
  if (targets.size() == 1) {
    frames_.back()[targets.front()] = std::move(value);
    return;
  }
  JinjaList values;
  try {
    values = value.items();
  } catch (const JinjaFailure& failure) {
    refuse(place, failure.reason);
  }
  if (values.size() != targets.size())
    refuse(place,
           formatted("{} values cannot be assigned to {} names", values.size(), targets.size()));
  for (std::size_t i = 0; i < targets.size(); ++i) frames_.back()[targets[i]] = values[i];
}

void Interpreter::set(const JinjaStatement& statement) {
  JinjaValue value = evaluate(*statement.value);
  if (statement.text.empty()) return assign(statement.targets, std::move(value), statement.place);
  const std::string& name = statement.targets.front();
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
    const auto found = frame->find(name);
    if (found == frame->end()) continue;
    if (JinjaNamespace* space = found->second.as_namespace()) {
      space->attributes[statement.text] = std::move(value);
      return;
    }
    break;
  }
  refuse(statement.place, cat(name, " is not a namespace, so its attributes cannot be set"));
}

MarkedText Interpreter::capture(const JinjaBody& body) {
  MarkedText outer = std::exchange(out_, {});
  frames_.emplace_back();
  run_body(body);
  frames_.pop_back();
  return std::exchange(out_, std::move(outer));
}

void Interpreter::define_macro(const JinjaStatement& macro) {
  // The syntax tree outlives the interpreter, and the function does not leave it.
  frames_.back()[macro.text] = JinjaFunction(
      [this, &macro](const JinjaArguments& given) { return call_macro(macro, given); });
}

JinjaValue Interpreter::call_macro(const JinjaStatement& macro, const JinjaArguments& given) {
  if (++depth_ > kMaxMacroDepth) refuse(macro.place, "macros call each other too deep");
  if (given.positional.size() > macro.parameters.size())
    jinja_fail(formatted("the macro {} takes at most {} arguments, {} are given", macro.text,
                         macro.parameters.size(), given.positional.size()));
  for (const auto& [name, value] : given.named) {
    const bool is_known = std::ranges::any_of(
        macro.parameters, [&](const JinjaParameter& one) { return one.name == name; });
    if (!is_known) jinja_fail(formatted("the macro {} has no argument {}", macro.text, name));
  }
  // A macro sees the variables of the template, not those of its caller.
  std::vector<Frame> outer(std::make_move_iterator(frames_.begin() + 2),
                           std::make_move_iterator(frames_.end()));
  frames_.resize(2);
  frames_.emplace_back();
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const JinjaParameter& parameter = macro.parameters[i];
    const JinjaValue* named = named_argument(given, parameter.name);
    JinjaValue value = JinjaValue::undefined(parameter.name);
    if (i < given.positional.size()) {
      value = given.positional[i];
    } else if (named != nullptr) {
      value = *named;
    } else if (parameter.otherwise) {
      value = evaluate(*parameter.otherwise);
    }
    frames_.back()[parameter.name] = std::move(value);
  }
  MarkedText text = capture(macro.body);
  frames_.resize(2);
  for (Frame& frame : outer) frames_.push_back(std::move(frame));
  --depth_;
  return text;
}

void Interpreter::generate(const JinjaStatement& statement) {
  const std::size_t begin = out_.size();
  frames_.emplace_back();
  run_body(statement.body);
  frames_.pop_back();
  generations_.emplace_back(begin, out_.size());
}

JinjaTemplate::JinjaTemplate(std::string_view source, std::string_view name)
    : name_(name),
      body_(std::make_shared<const JinjaBody>(parse_template(source, name))),
      has_generation_(holds_generation(*body_)) {}

JinjaOutput JinjaTemplate::render(std::map<std::string, JinjaValue> variables) const {
  return Interpreter(name_, std::move(variables)).run(*body_);
}

}  // namespace trireme::text::jinja
