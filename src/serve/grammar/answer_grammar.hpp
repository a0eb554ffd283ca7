#pragma once
#include <string>
#include <utility>
#include <vector>

#include "serve/grammar/grammar_mask.hpp"

namespace trireme {

/// One JSON object of any form.
TextGrammar json_object_grammar();

/// Values of a JSON schema (schema_rules.hpp). Throws SchemaProblem, and Error(usage) if it is too
/// large.
TextGrammar json_schema_grammar(const std::string& schema);

/// A tool's name, and the JSON schema of its arguments; "" for any object.
using CallableTool = std::pair<std::string, std::string>;

/// Calls of these tools as CallForm::qwen writes them: one, or with `several` one after another. A
/// schema that has no grammar, is too large, or allows other values than objects stands for any object.
TextGrammar tool_call_grammar(const std::vector<CallableTool>& tools, bool several);

}  // namespace trireme
