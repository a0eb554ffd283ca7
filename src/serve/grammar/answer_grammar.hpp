#pragma once
#include <string>
#include <vector>

#include "serve/grammar/grammar_mask.hpp"
#include "serve/grammar/schema_values.hpp"

namespace trireme::serve {
TextGrammar json_object_grammar();

/// Returns a grammar for the values of a JSON schema (schema_rules.hpp). Throws SchemaProblem, or
/// Error if the schema is too large: more than 256 KiB, or a grammar with too many elements.
TextGrammar json_schema_grammar(const std::string& schema);

struct CallableTool {
  std::string name;
  std::string schema;      // JSON schema of the arguments; empty for any object
  bool is_strict = false;  // the arguments must match the schema
};

/// Thrown if the schema of a strict tool cannot become a grammar.
struct ToolProblem {
  std::string tool;
  SchemaProblem problem;
};

enum class CallStart { whole, opened };

/// Returns a grammar for calls of these tools in the form of CallForm::qwen: one or more calls if
/// `several`, otherwise exactly one. If the schema of a tool has no grammar, is too large or allows
/// other values than objects, the arguments may be any object; if the tool is strict, throws
/// ToolProblem instead. Keywords that a validator need not check (format) are ignored, unless the
/// tool is strict. With CallStart::opened, the text begins after the first "<tool_call>".
TextGrammar tool_call_grammar(const std::vector<CallableTool>& tools, bool several,
                              CallStart start = CallStart::whole);

}  // namespace trireme::serve
