#pragma once
#include <optional>
#include <string_view>

#include "text/jinja/value.hpp"

/// The filters, tests and methods of templates. A table lists each of them, so that the parser can
/// refuse other names.
namespace trireme::text::jinja {

bool has_filter(std::string_view name);
bool has_test(std::string_view name);
/// Returns true for a method of texts, lists or dicts.
bool has_method(std::string_view name);

/// Applies a filter to `value`. Throws JinjaFailure.
JinjaValue apply_filter(std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments);

/// Returns the result of a test. Throws JinjaFailure.
bool apply_test(std::string_view name, const JinjaValue& value, const JinjaArguments& arguments);

/// Returns the method of `value`, or none if its type has no such method.
std::optional<JinjaValue> method_of(const JinjaValue& value, std::string_view name);

/// Returns the value of a named or positional argument; none if it is absent.
const JinjaValue* argument(const JinjaArguments& arguments, std::size_t position,
                           std::string_view name);

/// Returns the value of a named argument; none if it is absent.
const JinjaValue* named_argument(const JinjaArguments& arguments, std::string_view name);

/// Returns object.name or object["name"]; an undefined value if there is none.
JinjaValue attribute_of(const JinjaValue& object, std::string_view name);

}  // namespace trireme::text::jinja
