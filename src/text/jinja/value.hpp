#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/marked_text.hpp"

namespace trireme::text::jinja {

class JinjaValue;
using JinjaList = std::vector<JinjaValue>;
/// Keys in the order of insertion. Keys are values, because texts of records keep their marks.
using JinjaDict = std::vector<std::pair<JinjaValue, JinjaValue>>;

/// The arguments of a call.
struct JinjaArguments {
  JinjaList positional;
  std::vector<std::pair<std::string, JinjaValue>> named;  // ordered as in the call
};

using JinjaFunction = std::function<JinjaValue(const JinjaArguments& arguments)>;

/// The result of a name that does not exist. `hint` names it in errors.
struct JinjaUndefined {
  std::string hint;
};

/// An object with attributes that a template may set.
struct JinjaNamespace {
  std::map<std::string, JinjaValue> attributes;
};

/// Describes an error of an expression. The evaluator adds line and column.
struct JinjaFailure {
  std::string reason;
};

/// A value of a template, with the semantics of Python. Copies share lists, dicts and texts, which
/// never change; only namespaces change.
class JinjaValue {
 public:
  JinjaValue() : data_(JinjaUndefined{}) {}

  JinjaValue(std::nullptr_t) : data_(nullptr) {}

  JinjaValue(bool value) : data_(value) {}

  JinjaValue(std::int64_t value) : data_(value) {}

  JinjaValue(double value) : data_(value) {}

  JinjaValue(MarkedText text) : data_(std::make_shared<const MarkedText>(std::move(text))) {}

  JinjaValue(JinjaList list) : data_(std::make_shared<const JinjaList>(std::move(list))) {}

  JinjaValue(JinjaDict dict) : data_(std::make_shared<const JinjaDict>(std::move(dict))) {}

  JinjaValue(JinjaFunction function)
      : data_(std::make_shared<const JinjaFunction>(std::move(function))) {}

  JinjaValue(std::shared_ptr<JinjaNamespace> space) : data_(std::move(space)) {}

  static JinjaValue undefined(std::string hint);

  /// Returns a text of the template.
  static JinjaValue text(std::string_view text) { return MarkedText::of_template(text); }

  [[nodiscard]] bool is_undefined() const { return get<JinjaUndefined>() != nullptr; }

  [[nodiscard]] bool is_none() const { return get<std::nullptr_t>() != nullptr; }

  /// Returns the content if the value has this type, else null.
  [[nodiscard]] const bool* as_bool() const { return get<bool>(); }

  [[nodiscard]] const std::int64_t* as_int() const { return get<std::int64_t>(); }

  [[nodiscard]] const double* as_double() const { return get<double>(); }

  [[nodiscard]] const MarkedText* as_text() const { return shared<const MarkedText>(); }

  [[nodiscard]] const JinjaList* as_list() const { return shared<const JinjaList>(); }

  [[nodiscard]] const JinjaDict* as_dict() const { return shared<const JinjaDict>(); }

  [[nodiscard]] const JinjaFunction* as_function() const { return shared<const JinjaFunction>(); }

  [[nodiscard]] JinjaNamespace* as_namespace() const { return shared<JinjaNamespace>(); }

  /// Returns the number of a bool, an integer or a float.
  [[nodiscard]] std::optional<double> number() const;
  /// Returns the integer of a bool or an integer.
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  [[nodiscard]] bool is_true() const;
  /// Returns the name of the type for errors.
  [[nodiscard]] const char* type_name() const;

  /// Returns str(value).
  [[nodiscard]] MarkedText str() const;
  /// Appends json.dumps(value, ensure_ascii=False). `indent`: blanks for each level; -1: one line.
  void append_json(MarkedText& out, int indent, bool sort_keys, int depth = 0) const;
  /// Returns the items of a list, the keys of a dict or the characters of a text; an undefined value
  /// has none. Throws JinjaFailure for other types.
  [[nodiscard]] JinjaList items() const;
  /// Returns the value of a key, or null.
  [[nodiscard]] const JinjaValue* find(std::string_view key) const;

  bool operator==(const JinjaValue& other) const;

 private:
  template <class T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&data_);
  }

  template <class T>
  [[nodiscard]] T* shared() const {
    const auto* found = std::get_if<std::shared_ptr<T>>(&data_);
    return found == nullptr ? nullptr : found->get();
  }

  void append_repr(MarkedText& out) const;

  std::variant<JinjaUndefined, std::nullptr_t, bool, std::int64_t, double,
               std::shared_ptr<const MarkedText>, std::shared_ptr<const JinjaList>,
               std::shared_ptr<const JinjaDict>, std::shared_ptr<const JinjaFunction>,
               std::shared_ptr<JinjaNamespace>>
      data_;
};

/// Throws JinjaFailure.
[[noreturn]] void jinja_fail(std::string reason);

/// Returns a negative number, 0 or a positive number, as the order of two numbers or two texts.
/// Throws JinjaFailure for other types.
int jinja_order(const JinjaValue& left, const JinjaValue& right);

/// Returns the result of Python's `item in container`.
bool jinja_contains(const JinjaValue& container, const JinjaValue& item);

/// Parses JSON. All texts, also keys, are texts of the record. Returns none for invalid JSON, and
/// for JSON that parse_json() refuses because it is nested too deeply.
std::optional<JinjaValue> jinja_from_json(std::string_view json);

}  // namespace trireme::text::jinja
