#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text::jinja {

/// A place in the source of a template, from 1.
struct JinjaPlace {
  std::size_t line = 1;
  std::size_t column = 1;
};

struct JinjaToken {
  enum class Kind {
    data,         // text outside of tags
    block_begin,  // {%
    block_end,
    output_begin,  // {{
    output_end,
    name,
    text,  // a string literal, with its escapes resolved
    integer,
    real,
    sign,  // an operator or a bracket
    end,
  };

  Kind kind = Kind::end;
  std::string text;
  JinjaPlace place;
};

/// Throws Error(data) that names the template, line and column.
[[noreturn]] void refuse_template(std::string_view template_name, JinjaPlace place,
                                  std::string_view reason);

/// Splits a template into tokens, with the white-space rules of `transformers` (trim_blocks and
/// lstrip_blocks are on, one newline at the end is removed). Comments and raw blocks are resolved.
/// Throws like refuse_template.
/// Source: the documentation of Jinja 3.1, "White Space Control".
std::vector<JinjaToken> lex_template(std::string_view source, std::string_view template_name);

}  // namespace trireme::text::jinja
