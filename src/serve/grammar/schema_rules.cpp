#include "serve/grammar/schema_rules.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "serve/grammar/number_ranges.hpp"
#include "serve/grammar/pattern_rules.hpp"
#include "serve/grammar/schema_values.hpp"

namespace trireme::serve {
namespace {

/// Assertions of JSON Schema that this compiler does not support.
constexpr std::array<std::string_view, 20> kRefused{"$dynamicRef",
                                                    "$recursiveRef",
                                                    "contains",
                                                    "dependencies",
                                                    "dependentRequired",
                                                    "dependentSchemas",
                                                    "else",
                                                    "if",
                                                    "maxContains",
                                                    "maxProperties",
                                                    "minContains",
                                                    "minProperties",
                                                    "multipleOf",
                                                    "not",
                                                    "patternProperties",
                                                    "propertyNames",
                                                    "then",
                                                    "unevaluatedItems",
                                                    "unevaluatedProperties",
                                                    "uniqueItems"};
/// Keywords that do not restrict the value. `nullable` and the definitions count here, because they
/// may stand beside every other keyword. OpenAPI's discriminator only names the property that
/// selects an alternative.
constexpr std::array kAnnotations{
    "$anchor",     "$comment", "$defs",       "$dynamicAnchor", "$id",         "$schema",
    "$vocabulary", "default",  "definitions", "deprecated",     "description", "discriminator",
    "example",     "examples", "nullable",    "readOnly",       "title",       "writeOnly"};
/// A keyword of kRefused that has no effect if its value is `false`.
constexpr const char* kFalseIsNothing = "uniqueItems";

/// Supported keywords that restrict the value. They are not supported together with one of
/// kWholeSchemas.
constexpr std::array kAssertions{"$ref",
                                 "additionalProperties",
                                 "allOf",
                                 "anyOf",
                                 "const",
                                 "enum",
                                 "exclusiveMaximum",
                                 "exclusiveMinimum",
                                 "format",
                                 "items",
                                 "maxItems",
                                 "maxLength",
                                 "maximum",
                                 "minItems",
                                 "minLength",
                                 "minimum",
                                 "oneOf",
                                 "pattern",
                                 "prefixItems",
                                 "properties",
                                 "required",
                                 "type"};

template <class Keys>
bool is_one_of(const Keys& keys, std::string_view key) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view each) { return each == key; });
}

/// Keywords that begin with "x-" are extensions of OpenAPI and do not restrict the value.
void refuse_what_has_no_form(const Json& schema, const std::string& path, OtherKeywords others) {
  for (const auto& [key, value] : schema.items()) {
    const bool is_nothing = value == false && key == kFalseIsNothing;
    const bool is_refused = is_one_of(kRefused, key) ||
                            (others == OtherKeywords::refuse && !is_one_of(kAnnotations, key) &&
                             !is_one_of(kAssertions, key) && !key.starts_with("x-"));
    if (is_refused && !is_nothing)
      throw SchemaProblem{below(path, key), formatted("{} is not supported", key)};
  }
  for (const char* whole : kWholeSchemas) {
    if (!schema.contains(whole)) continue;
    for (const char* key : kAssertions) {
      if (std::string_view(key) != whole && schema.contains(key))
        throw SchemaProblem{below(path, key),
                            formatted("{} together with {} is not supported", key, whole)};
    }
  }
}

struct Counts {
  std::int64_t least = 0;
  std::int64_t most = -1;
};

Counts counts_of(const Json& schema, const char* least, const char* most, const std::string& path) {
  const Counts counts{count_of(schema, least, path).value_or(0),
                      count_of(schema, most, path).value_or(-1)};
  if (counts.most >= 0 && counts.most < counts.least)
    throw SchemaProblem{below(path, most), formatted("must not be less than {}", least)};
  return counts;
}

std::set<std::string> required_of(const Json& schema, const std::string& path) {
  std::set<std::string> names;
  const Json* list = member(schema, "required");
  if (list == nullptr) return names;
  if (!list->is_array()) throw SchemaProblem{below(path, "required"), "must be a list"};
  for (const Json& name : *list) {
    if (!name.is_string())
      throw SchemaProblem{below(path, "required"), "must be a list of strings"};
    names.insert(name.get<std::string>());
  }
  return names;
}

}  // namespace

SchemaRules::SchemaRules(ByteGrammar& grammar, const Json& root, OtherKeywords others)
    : grammar_(grammar), root_(root), others_(others), json_(grammar) {}

GrammarSequence SchemaRules::compile() {
  GrammarSequence whole = compile_part(root_, "");
  if (grammar_.has_left_recursion()) throw SchemaProblem{"$ref", "refers to itself only"};
  return whole;
}

GrammarSequence SchemaRules::compile_part(const Json& schema, const std::string& path) {
  // maximum depth, like that of the JSON parser; references can make a schema deeper than its text
  constexpr int kDeepest = 64;
  if (schema == true) return json_.value();
  if (schema == false) throw SchemaProblem{path, "must not be false, which allows no value"};
  if (!schema.is_object()) throw SchemaProblem{path, "must be an object"};
  if (++depth_ > 4 * kDeepest) throw SchemaProblem{path, "is nested too deeply"};
  refuse_what_has_no_form(schema, path, others_);
  GrammarSequence part;
  if (const Json* reference = member(schema, "$ref")) {
    if (!reference->is_string()) throw SchemaProblem{below(path, "$ref"), "must be a string"};
    part = of_reference(reference->get<std::string>(), below(path, "$ref"));
  } else if (schema.contains("const") || schema.contains("enum")) {
    std::vector<GrammarSequence> alternatives;
    for (const Json& value : listed_values(schema, path))
      alternatives.push_back(grammar_.literal(value.dump()));
    part = grammar_.choice(alternatives);
  } else if (const Json* any = member(schema, "anyOf")) {
    part = of_alternatives(*any, below(path, "anyOf"));
  } else if (const Json* one = member(schema, "oneOf")) {
    part = of_alternatives(*one, below(path, "oneOf"));
  } else if (const Json* all = member(schema, "allOf")) {
    if (!all->is_array() || all->size() != 1)
      throw SchemaProblem{below(path, "allOf"),
                          "must have exactly one schema; more are not supported"};
    part = compile_part(all->front(), below(path, "allOf.0"));
  } else {
    part = of_types(schema, path);
  }
  --depth_;
  const Json* nullable = member(schema, "nullable");  // OpenAPI 3.0
  if (nullable != nullptr && *nullable == true) return grammar_.choice({part, json_.null()});
  // Return a reference to a rule, because a caller may use the result twice. Copies would double
  // the size with each level of nesting.
  return part.size() > 1 ? grammar_.choice({part}) : part;
}

GrammarSequence SchemaRules::of_reference(const std::string& reference, const std::string& path) {
  if (!reference.starts_with('#'))
    throw SchemaProblem{path,
                        formatted("'{}' is outside the schema, which is not supported", reference)};
  const Json* target = referenced(root_, reference);
  if (target == nullptr)
    throw SchemaProblem{path, formatted("'{}' is not in the schema", reference)};
  const auto found = references_.find(target);
  if (found != references_.end()) return ByteGrammar::of_rule(found->second);
  const std::uint32_t rule = grammar_.declare();
  references_.emplace(target, rule);
  grammar_.define(rule, {compile_part(*target, reference == "#" ? "" : reference.substr(2))});
  return ByteGrammar::of_rule(rule);
}

GrammarSequence SchemaRules::of_alternatives(const Json& list, const std::string& path) {
  if (!list.is_array() || list.empty()) throw SchemaProblem{path, "must be a list of schemas"};
  std::vector<GrammarSequence> alternatives;
  for (const Json& each : list)
    alternatives.push_back(compile_part(each, below(path, std::to_string(alternatives.size()))));
  return grammar_.choice(alternatives);
}

GrammarSequence SchemaRules::of_types(const Json& schema, const std::string& path) {
  const std::vector<std::string> types = types_of(schema, path);
  if (types.empty()) {
    const auto has = [&](std::initializer_list<const char*> keys) {
      return std::any_of(keys.begin(), keys.end(),
                         [&](const char* key) { return schema.contains(key); });
    };
    if (has({"properties", "required", "additionalProperties"}))
      return of_type("object", schema, path);
    if (has({"items", "prefixItems", "minItems", "maxItems"}))
      return of_type("array", schema, path);
    if (has({"minLength", "maxLength", "pattern", "format"}))
      return of_type("string", schema, path);
    if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}))
      return of_type("number", schema, path);
    return json_.value();
  }
  if (types.size() == 1) return of_type(types.front(), schema, path);
  std::vector<GrammarSequence> alternatives;
  for (const std::string& type : types) alternatives.push_back(of_type(type, schema, path));
  return grammar_.choice(alternatives);
}

GrammarSequence SchemaRules::of_type(const std::string& type, const Json& schema,
                                     const std::string& path) {
  if (type == "object") return of_object(schema, path);
  if (type == "array") return of_array(schema, path);
  if (type == "integer" || type == "number") return of_number(type, schema, path);
  if (type == "boolean") return json_.boolean();
  if (type == "null") return json_.null();
  if (type != "string") {
    throw SchemaProblem{below(path, "type"),
                        formatted("'{}' must be object, array, string, integer, number, boolean or "
                                  "null",
                                  type)};
  }
  return of_string(schema, path);
}

GrammarSequence SchemaRules::of_string(const Json& schema, const std::string& path) {
  const Counts counts = counts_of(schema, "minLength", "maxLength", path);
  const bool has_length = counts.least > 0 || counts.most >= 0;
  const Json* pattern = member(schema, "pattern");
  const Json* format = member(schema, "format");
  // A known format is an assertion. With OtherKeywords::pass, an unknown one is ignored.
  if (format != nullptr && others_ == OtherKeywords::pass &&
      !(format->is_string() && is_format(format->get_ref<const std::string&>())))
    format = nullptr;
  if (int{has_length} + int{pattern != nullptr} + int{format != nullptr} > 1)
    throw SchemaProblem{below(path, pattern != nullptr ? "pattern" : "format"),
                        "together with other keywords of strings is not supported"};
  for (const auto& [key, value] : {std::pair{"pattern", pattern}, {"format", format}}) {
    if (value == nullptr) continue;
    if (!value->is_string()) throw SchemaProblem{below(path, key), "must be a string"};
    const auto& text = value->get_ref<const std::string&>();
    return value == pattern ? strings_matching(grammar_, json_, text, below(path, key))
                            : strings_of_format(grammar_, json_, text, below(path, key));
  }
  return has_length ? json_.text_of_length(counts.least, counts.most) : json_.text();
}

GrammarSequence SchemaRules::of_object(const Json& schema, const std::string& path) {
  const Json* properties = member(schema, "properties");
  if (properties != nullptr && !properties->is_object())
    throw SchemaProblem{below(path, "properties"), "must be an object"};
  if (properties != nullptr && !properties->empty()) return of_members(*properties, schema, path);
  if (const Json* required = member(schema, "required"); required != nullptr && !required->empty())
    return of_members(Json::object(), schema, path);
  const Json* more = member(schema, "additionalProperties");
  if (more == nullptr || *more == true) return json_.object();
  if (*more == false) return grammar_.literal("{") + json_.space() + grammar_.literal("}");
  return json_.object_of(compile_part(*more, below(path, "additionalProperties")));
}

/// Builds the members from the last to the first, because a member has a comma before it only if
/// another member came before.
GrammarSequence SchemaRules::of_members(const Json& properties, const Json& schema,
                                        const std::string& path) {
  const std::set<std::string> required = required_of(schema, path);
  std::set<std::string> others = required;  // required members that are not in `properties`
  std::vector<std::pair<std::string, GrammarSequence>> members;
  for (const auto& [name, value] : properties.items()) {
    members.emplace_back(name, compile_part(value, below(below(path, "properties"), name)));
    others.erase(name);
  }
  if (!others.empty()) {
    const Json* more = member(schema, "additionalProperties");
    if (more != nullptr && *more == false) {
      throw SchemaProblem{
          below(path, "required"),
          formatted("'{}' is not allowed by additionalProperties", *others.begin())};
    }
    const GrammarSequence value =
        more == nullptr ? json_.value() : compile_part(*more, below(path, "additionalProperties"));
    for (const std::string& name : others) members.emplace_back(name, value);
  }
  const GrammarSequence comma = grammar_.literal(",") + json_.space();
  GrammarSequence first;  // remaining members if no member came before
  GrammarSequence later;  // remaining members after another member
  for (auto each = members.rbegin(); each != members.rend(); ++each) {
    const GrammarSequence here = grammar_.choice(
        {grammar_.literal(Json(each->first).dump() + ":") + json_.space() + each->second});
    const bool must = required.contains(each->first);
    std::vector<GrammarSequence> as_first{here + later};
    std::vector<GrammarSequence> as_later{comma + here + later};
    if (!must) {
      as_first.push_back(first);
      as_later.push_back(later);
    }
    first = grammar_.choice(as_first);
    later = grammar_.choice(as_later);
  }
  return grammar_.literal("{") + json_.space() + first + json_.space() + grammar_.literal("}");
}

GrammarSequence SchemaRules::of_array(const Json& schema, const std::string& path) {
  const Counts counts = counts_of(schema, "minItems", "maxItems", path);
  const Json* items = member(schema, "items");
  const Json* first = member(schema, "prefixItems");
  if (first == nullptr) {
    if (items == nullptr || *items == true)
      return counts.least == 0 && counts.most < 0
                 ? json_.array()
                 : json_.array_of(json_.value(), counts.least, counts.most);
    if (items->is_boolean() && counts.least > 0)
      throw SchemaProblem{below(path, "minItems"), "must be 0 because items is false"};
    if (items->is_boolean()) return json_.array_of({}, 0, 0);
    return json_.array_of(compile_part(*items, below(path, "items")), counts.least, counts.most);
  }
  if (!first->is_array() || first->empty())
    throw SchemaProblem{below(path, "prefixItems"), "must be a list of schemas"};
  const auto size = static_cast<std::int64_t>(first->size());
  if (counts.least > size || (counts.most >= 0 && counts.most < size)) {
    throw SchemaProblem{below(path, counts.least > size ? "minItems" : "maxItems"),
                        "must allow exactly as many items as prefixItems has"};
  }
  GrammarSequence list = grammar_.literal("[") + json_.space();
  std::size_t at = 0;
  for (const Json& each : *first) {
    if (at != 0) list = std::move(list) + grammar_.literal(",") + json_.space();
    list = std::move(list) +
           compile_part(each, below(below(path, "prefixItems"), std::to_string(at++)));
  }
  return list + json_.space() + grammar_.literal("]");
}

GrammarSequence SchemaRules::of_number(const std::string& type, const Json& schema,
                                       const std::string& path) {
  if (type == "integer") {
    const IntegerLimits limits = integer_limits_of(schema, path);
    if (!limits.least && !limits.most) return json_.integer();
    return integers_between(grammar_, limits.least, limits.most);
  }
  const NumberLimits limits = number_limits_of(schema, path);
  if (!limits.least && !limits.most) return json_.number();
  const bool is_zero_or_more =
      limits.least && !limits.most && limits.least->value == 0 && !limits.least->is_exclusive;
  return is_zero_or_more ? json_.number_of_zero_or_more()
                         : numbers_between(grammar_, limits.least, limits.most);
}

}  // namespace trireme::serve
