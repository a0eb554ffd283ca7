#pragma once
#include <string>
#include <string_view>

#include "core/fields.hpp"

/// One configuration value as text: what the command line and the environment give, and what is
/// shown and saved.
namespace trireme {

/// Placeholder in help: INT, NUMBER, BOOL, TEXT or TEXT...
std::string_view value_placeholder(const FieldPointer& field);

/// Sets the field from text; returns "" or what the text must be ("must be an integer"), then
/// nothing changed. Numbers are finite decimals; booleans are `true` and `false`; texts are UTF-8; of
/// texts it is the only one.
std::string assign_text(const FieldPointer& field, std::string_view text);

/// Sets the field from another of the same type.
void assign_field(const FieldPointer& field, const FieldPointer& from);

/// The value as the command line would take it.
std::string value_text(const FieldPointer& field);

/// The value as a TOML literal that reads back to the same bits.
std::string value_toml(const FieldPointer& field);

}  // namespace trireme
