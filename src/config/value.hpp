#pragma once
#include <string>
#include <string_view>

#include "core/fields.hpp"

/// Converts configuration values between their fields and text.
namespace trireme::config {

/// Returns the placeholder in help: INT, NUMBER, BOOL, TEXT or TEXT...
std::string_view value_placeholder(const FieldPointer& field);

/// Sets the field from text and returns "". If the text is invalid, changes nothing and returns the
/// requirement ("must be an integer"). Numbers are finite decimals, booleans `true` or `false`,
/// strings UTF-8; a list gets the text as its only element.
std::string assign_text(const FieldPointer& field, std::string_view text);

/// Copies the value of another field of the same type.
void assign_field(const FieldPointer& field, const FieldPointer& from);

/// Returns the value in the form of the command line.
std::string value_text(const FieldPointer& field);

/// Returns the value as a TOML literal that parses to the same bits.
std::string value_toml(const FieldPointer& field);

}  // namespace trireme::config
