#pragma once
#include <string>
#include <vector>

#include "serve/grammar/grammar_mask.hpp"
#include "serve/grammar/schema_values.hpp"

namespace trireme {

/// One JSON object of any form.
TextGrammar json_object_grammar();

/// Values of a JSON schema (schema_rules.hpp). Throws SchemaProblem, and Error(usage) if it is too
/// large.
TextGrammar json_schema_grammar(const std::string& schema);

/// A tool that may be called.
struct CallableTool {
  std::string name;
  std::string schema;      // JSON schema of its arguments; "" for any object
  bool is_strict = false;  // the arguments must fit it
};

/// Why the schema of a strict tool cannot be a grammar.
struct ToolProblem {
  std::string tool;
  SchemaProblem problem;
};

enum class CallStart { whole, opened };

/// Calls of these tools as CallForm::qwen writes them: one, or with `several` one after another. A
/// schema that has no grammar, is too large, or allows other values than objects stands for any object;
/// of a strict tool it is a ToolProblem that is thrown. Keywords that a validator need not check
/// (format) are passed over, unless the tool is strict.
/// With CallStart::opened the text begins behind the first "<tool_call>".
TextGrammar tool_call_grammar(const std::vector<CallableTool>& tools, bool several,
                              CallStart start = CallStart::whole);

}  // namespace trireme
