#include "serve/grammar/answer_grammar.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "serve/grammar/schema_rules.hpp"

namespace trireme::serve {
namespace {

/// The time to compile a schema may grow with the square of its size: each reference is searched in
/// the whole schema, and each part has a path.
constexpr JsonLimits kSchemaLimits{.max_bytes = std::size_t{256} << 10};

/// Returns a grammar for `text` after up to two line ends, which models write after a thought.
TextGrammar whole_text(const std::shared_ptr<ByteGrammar>& grammar, const GrammarSequence& text) {
  const std::uint32_t start = grammar->declare();
  grammar->define(start, {grammar->repeated(grammar->literal("\n"), 0, 2) + text});
  return {grammar, start};
}

/// Returns true if the schema allows objects only. `seen` has the targets of references that were
/// followed. A target that does not allow objects only ends the search, so none is followed twice.
bool is_of_objects(const Json& schema, const Json& root, std::set<const Json*>& seen,
                   int depth = 0) {
  constexpr int kMostReferences = 8;  // longest sequence of references that is followed
  if (!schema.is_object() || depth > kMostReferences || schema.contains("nullable")) return false;
  if (const Json* reference = member(schema, "$ref")) {
    const Json* target =
        reference->is_string() ? referenced(root, reference->get<std::string>()) : nullptr;
    if (target == nullptr) return false;
    return !seen.insert(target).second || is_of_objects(*target, root, seen, depth + 1);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* list = member(schema, key);
    if (list == nullptr) continue;
    return list->is_array() && std::all_of(list->begin(), list->end(), [&](const Json& each) {
             return is_of_objects(each, root, seen, depth + 1);
           });
  }
  const Json* type = member(schema, "type");
  return type != nullptr && *type == "object";
}

/// Parses the schema of the arguments of a call. A schema without a type gets the type object.
Json arguments_schema(const std::string& schema) {
  Json parsed = parse_json(schema, "schema", kSchemaLimits);
  const bool is_bare =
      parsed.is_object() && std::none_of(kWholeSchemas.begin(), kWholeSchemas.end(),
                                         [&](const char* key) { return parsed.contains(key); });
  if (is_bare && !parsed.contains("type")) parsed["type"] = "object";
  return parsed;
}

/// Returns the grammar of the arguments. If the tool is not strict, the result is any object in
/// three cases: the schema has no grammar, it allows other values than objects, or it is too large.
GrammarSequence arguments_of(ByteGrammar& grammar, JsonRules& json, const CallableTool& tool) {
  if (tool.schema.empty()) return json.object();
  const OtherKeywords others = tool.is_strict ? OtherKeywords::refuse : OtherKeywords::pass;
  try {
    const Json parsed = arguments_schema(tool.schema);
    std::set<const Json*> seen;
    if (!is_of_objects(parsed, parsed, seen)) {
      if (tool.is_strict) throw SchemaProblem{"", "must allow objects only"};
      return json.object();
    }
    // A failed compilation must not leave elements in `grammar`. Therefore first compile into
    // another grammar.
    ByteGrammar alone;
    static_cast<void>(SchemaRules(alone, parsed, others).compile());
    if (grammar.size() + alone.size() <= ByteGrammar::kMaxElements / 2)
      return SchemaRules(grammar, parsed, others).compile();
    if (tool.is_strict) throw SchemaProblem{"", "is too large together with the other tools"};
    return json.object();
  } catch (const SchemaProblem& problem) {
    if (tool.is_strict) throw ToolProblem{tool.name, problem};
    return json.object();
  } catch (const Error& error) {
    if (tool.is_strict) throw ToolProblem{tool.name, {"", error.what()}};
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
  const Json parsed = parse_json(schema, "schema", kSchemaLimits);
  return whole_text(grammar, SchemaRules(*grammar, parsed).compile());
}

TextGrammar tool_call_grammar(const std::vector<CallableTool>& tools, bool several,
                              CallStart start) {
  const auto grammar = std::make_shared<ByteGrammar>();
  JsonRules json(*grammar);
  std::vector<GrammarSequence> calls;
  for (const CallableTool& tool : tools) {
    calls.push_back(grammar->literal(Json(tool.name).dump() + ", \"arguments\": ") +
                    arguments_of(*grammar, json, tool));
  }
  const GrammarSequence rest =
      grammar->choice({grammar->literal("\n{\"name\": ") + grammar->choice(calls) +
                       grammar->literal("}\n</tool_call>")});
  const GrammarSequence call = grammar->literal("<tool_call>") + rest;
  const GrammarSequence first = start == CallStart::opened ? rest : call;
  const GrammarSequence text =
      several ? first + grammar->any_number(grammar->literal("\n") + call) : first;
  if (start == CallStart::whole) return whole_text(grammar, text);
  const std::uint32_t rule = grammar->declare();
  grammar->define(rule, {text});
  return {grammar, rule};
}

}  // namespace trireme::serve
