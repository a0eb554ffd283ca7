#include "serve/grammar/answer_grammar.hpp"

#include <nlohmann/json.hpp>

#include "serve/grammar/schema_rules.hpp"

namespace trireme {
namespace {

/// `text` may have up to two line ends before it, as after a thought.
TextGrammar whole_text(const std::shared_ptr<ByteGrammar>& grammar, const GrammarPiece& text) {
  const std::uint32_t start = grammar->declare();
  grammar->define(start, {grammar->repeated(grammar->literal("\n"), 0, 2) + text});
  return {grammar, start};
}

GrammarPiece arguments_of(ByteGrammar& grammar, JsonRules& json, const std::string& schema) {
  if (schema.empty()) return json.object();
  try {
    const Json parsed = parse_json(schema, "schema");
    return SchemaRules(grammar, parsed).compile();
  } catch (const SchemaProblem&) {
    return json.object();
  }
}

}  // namespace

TextGrammar json_object_grammar() {
  const auto grammar = std::make_shared<ByteGrammar>();
  return whole_text(grammar, JsonRules(*grammar).object());
}

TextGrammar json_schema_grammar(const std::string& schema) {
  const auto grammar = std::make_shared<ByteGrammar>();
  const Json parsed = parse_json(schema, "schema");
  return whole_text(grammar, SchemaRules(*grammar, parsed).compile());
}

TextGrammar tool_call_grammar(const std::vector<CallableTool>& tools, bool several) {
  const auto grammar = std::make_shared<ByteGrammar>();
  JsonRules json(*grammar);
  std::vector<GrammarPiece> calls;
  for (const auto& [name, schema] : tools) {
    calls.push_back(grammar->literal(Json(name).dump() + ", \"arguments\": ") +
                    arguments_of(*grammar, json, schema));
  }
  const GrammarPiece call =
      grammar->choice({grammar->literal("<tool_call>\n{\"name\": ") + grammar->choice(calls) +
                       grammar->literal("}\n</tool_call>")});
  return whole_text(grammar,
                    several ? call + grammar->any_number(grammar->literal("\n") + call) : call);
}

}  // namespace trireme
