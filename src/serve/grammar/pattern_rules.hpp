#pragma once
#include <string>
#include <string_view>

#include "serve/grammar/byte_grammar.hpp"
#include "serve/grammar/json_rules.hpp"

namespace trireme::serve {

/// Compiles a regular expression (the keyword `pattern` of JSON Schema: ECMA-262 with the flag u)
/// into the JSON strings, with their quotes, that have a match. As in JSON Schema, the match may be
/// anywhere in the value unless the pattern has `^` and `$`.
///
/// Supported: characters, `.`, classes, the escapes \d \D \s \S \w \W \t \n \v \f \r \0 \xHH \uHHHH
/// \u{H...}, groups (also (?:...) and (?<name>...)), `|`, the quantifiers * + ? {n} {n,} {n,m} (also
/// lazy, which matches the same values), and `^` and `$` at the ends of an alternative that is in no
/// group. Throws SchemaProblem with `path` for other expressions.
GrammarSequence strings_matching(ByteGrammar& grammar, JsonRules& json, std::string_view pattern,
                                 const std::string& path);

/// Returns true if strings_of_format() supports the format.
bool is_format(std::string_view format);

/// Returns the JSON strings of a `format` of JSON Schema: date, time, date-time, duration, email,
/// hostname, ipv4, ipv6, uri or uuid. Not every string of the format has a text. Throws SchemaProblem
/// with `path` for other formats.
GrammarSequence strings_of_format(ByteGrammar& grammar, JsonRules& json, std::string_view format,
                                  const std::string& path);

}  // namespace trireme::serve
