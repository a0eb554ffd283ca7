#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "serve/grammar/answer_grammar.hpp"
#include "serve/grammar/grammar_reader.hpp"
#include "serve/grammar/schema_rules.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::serve {
namespace {

bool takes(const std::string& schema, std::string_view text) {
  const TextGrammar grammar = json_schema_grammar(schema);
  GrammarReader reader(grammar.grammar, grammar.start);
  GrammarReader::State state = reader.start();
  for (const char c : text) state = reader.step(state, static_cast<unsigned char>(c));
  return reader.may_end(state);
}

struct Row {
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

TEST(SchemaRules, WritesWhatTheSchemaDescribes) {
  const std::vector<Row> rows{
      {R"({"type": "string"})", {R"("")", R"("a\"b")"}, {"1", R"("a)", "null"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("你\n😀")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": ["integer", "null"]})", {"0", "-17", "null"}, {"1.5", "\"1\""}},
      {R"({"type": "number"})", {"0", "-1.25", "3e8"}, {".5", "01", "NaN"}},
      {R"({"type": "number", "minimum": 0})", {"0.5"}, {"-1"}},
      {R"({"type": "integer", "minimum": 3, "maximum": 21})", {"3", "9", "10", "21"}, {"2", "22"}},
      {R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"type": "integer", "minimum": 2.5, "exclusiveMaximum": 4.0})", {"3"}, {"2", "4"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "0.0", "1.0", "0.999"},
       {"1.1", "2", "-0.1", "1.01", "0."}},
      {R"({"type": "number", "exclusiveMinimum": 0})", {"0.001", "17.5"}, {"0", "0.0", "-1"}},
      {R"({"exclusiveMinimum": -1.5, "maximum": 10.25})",
       {"-1.4", "-1.49", "0", "9.99", "10.25", "10.2"},
       {"-1.5", "-1.50", "-2", "10.26", "10.3", "11", "null"}},
      {R"({"enum": [1, 2, 3, 4], "exclusiveMinimum": 1, "exclusiveMaximum": 4})",
       {"2", "3"},
       {"1", "4"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2026-02-28")", R"("2026-12-31")"},
       {R"("2026-02-30")", R"("2026-04-31")", R"("26-01-01")", R"("2026-1-1")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2026-02-28T23:59:59Z")", R"("2026-02-28T00:00:00.125+01:30")"},
       {R"("2026-02-28")", R"("2026-02-28T24:00:00Z")", R"("2026-02-28T10:00:00")"}},
      {R"({"format": "duration"})",
       {R"("P1Y2M3DT4H5M6S")", R"("PT5M")", R"("P3W")"},
       {R"("P")", R"("PT")"}},
      {R"({"format": "email"})", {R"("a.b+c@example.org")"}, {R"("a@b")", R"("@example.org")"}},
      {R"({"format": "ipv4"})", {R"("255.0.17.249")"}, {R"("256.0.0.1")", R"("1.2.3")"}},
      {R"({"format": "ipv6"})", {R"("2001:db8:0:0:0:0:0:1")"}, {R"("2001:db8")"}},
      {R"({"format": "uri"})", {R"("https://example.org:8080/a/b?c=d")"}, {R"("example.org")"}},
      {R"({"format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"0"}},
      {R"({"enum": ["a b", 3, null, {"x": [1]}]})",
       {R"("a b")", "3", "null", R"({"x":[1]})"},
       {R"("c")", "4"}},
      {R"({"const": "é"})", {"\"é\""}, {"\"e\""}},
      {R"({"type": "string", "enum": [1, "a", "abc", null], "maxLength": 2})",
       {R"("a")"},
       {"1", R"("abc")", "null"}},
      {R"({"type": ["integer", "null"], "enum": [1, 1.5, 7, null, "x"], "maximum": 6})",
       {"1", "null"},
       {"1.5", "7", R"("x")"}},
      {R"({"const": "a", "enum": ["a", "b"], "type": "string"})", {R"("a")"}, {R"("b")"}},
      {R"({"required": ["a"], "additionalProperties": {"type": "integer"}})",
       {R"({"a": 1})"},
       {R"({"a": null})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "boolean"}]})", {"1", "true"}, {"\"\""}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
       {"[1]", "[1, 2]", "[ 1,2 ]"},
       {"[]", "[1,2,3]", "[1,]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]})",
       {R"([1, "a"])"},
       {"[1]", R"(["a", 1])"}},
      {R"({"type": "array"})", {"[]", R"([1, "a", {}])"}, {"{}"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"},
           "c": {}}, "required": ["b"]})",
       {R"({"b": true})", R"({"a": 1, "b": false})", R"({"a":1,"b":true,"c":[{}]})"},
       {"{}", R"({"a": 1})", R"({"b": true, "a": 1})", R"({"b": true, "d": 1})", R"({,"b": true})",
        R"({"b": true,})"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}}})",
       {"{}", R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"},
       {R"({"a": 1 "b": 2})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x": 1, "y": 2})"},
       {R"({"x": "1"})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"x": 1})"}},
      {R"({"type": "object", "required": ["k"]})", {R"({"k": [1]})"}, {"{}"}},
      {R"({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [
           {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"]}},
           "$ref": "#/$defs/node"})",
       {R"({"next": null})", R"({"next": {"next": {"next": null}}})"},
       {R"({"next": 1})", "{}"}},
      {R"({"type": "string", "nullable": true, "description": "d", "title": "t", "x-any": 1})",
       {"\"a\"", "null"},
       {"1"}},
      {R"({"allOf": [{"type": "boolean"}], "default": true})", {"true"}, {"1"}},
      {"true", {"1", R"({"a": []})"}, {"x"}}};
  for (const Row& row : rows) {
    for (const char* text : row.good) EXPECT_TRUE(takes(row.schema, text)) << row.schema << text;
    for (const char* text : row.bad) EXPECT_FALSE(takes(row.schema, text)) << row.schema << text;
  }
}

std::string problem_of(const std::string& schema) {
  try {
    (void)json_schema_grammar(schema);
  } catch (const SchemaProblem& problem) {
    return problem.path + ": " + problem.reason;
  }
  return "none";
}

TEST(SchemaRules, NamesWhatItCannotWrite) {
  EXPECT_EQ(problem_of(R"({"type": "string", "pattern": "(?=a)b"})"),
            "pattern: has a lookaround or a flag at character 3, which is not supported");
  EXPECT_EQ(problem_of(R"({"type": "string", "pattern": "a", "minLength": 1})"),
            "pattern: together with other keywords of strings is not supported");
  EXPECT_EQ(problem_of(R"({"enum": ["a"], "pattern": "a"})"),
            "pattern: pattern together with enum is not supported");
  EXPECT_EQ(problem_of(R"({"type": "object", "properties": {"a": {"type": "array",
                            "items": {"multipleOf": 2}}}})"),
            "properties.a.items.multipleOf: multipleOf is not supported");
  EXPECT_EQ(problem_of(R"({"type": "string", "format": "iri"})"),
            "format: 'iri' is not supported; it must be date, time, date-time, duration, email, "
            "hostname, ipv4, ipv6, uri, uuid");
  EXPECT_EQ(problem_of(R"({"type": "object", "properties": {"to": {"$ref": "#/$defs/mail"}},
                           "$defs": {"mail": {"anyOf": [{"type": "null"},
                             {"type": "array", "items": {"type": "string", "multipleOf": 2}}]}}})"),
            "$defs/mail.anyOf.1.items.multipleOf: multipleOf is not supported");
  EXPECT_EQ(problem_of(R"({"type": "string", "minLenght": 2})"),
            "minLenght: minLenght is not supported");
  EXPECT_EQ(problem_of(R"({"type": "string", "contentEncoding": "base64"})"),
            "contentEncoding: contentEncoding is not supported");
  EXPECT_EQ(problem_of(R"({"$schema": "s", "$id": "i", "title": "t", "type": "object",
                           "properties": {"format": {"type": "string", "description": "d",
                           "default": "x", "examples": ["y"]}}, "additionalProperties": false})"),
            "none");
  EXPECT_EQ(problem_of(R"({"type": "array", "uniqueItems": false})"), "none");
  EXPECT_EQ(problem_of(R"({"type": "tuple"})"),
            "type: 'tuple' must be object, array, string, integer, number, boolean or null");
  EXPECT_EQ(problem_of(R"({"$ref": "#/$defs/x"})"), "$ref: '#/$defs/x' is not in the schema");
  EXPECT_EQ(problem_of(R"({"$ref": "http://x/y"})"),
            "$ref: 'http://x/y' is outside the schema, which is not supported");
  EXPECT_EQ(problem_of(R"({"$ref": "#"})"), "$ref: refers to itself only");
  EXPECT_EQ(problem_of(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"),
            "$ref: refers to itself only");
  EXPECT_EQ(problem_of(R"({"anyOf": [{"type": "null"}], "properties": {}})"),
            "properties: properties together with anyOf is not supported");
  EXPECT_EQ(problem_of(R"({"type": "integer", "minimum": 5, "maximum": 4})"),
            "maximum: must not be less than the lower limit");
  EXPECT_EQ(problem_of(R"({"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 5})"),
            "exclusiveMaximum: must not be less than the lower limit");
  EXPECT_EQ(problem_of(R"({"type": "integer", "exclusiveMinimum": true})"),
            "exclusiveMinimum: must be a number");
  EXPECT_EQ(problem_of(R"({"type": "array", "minItems": 3, "maxItems": 2})"),
            "maxItems: must not be less than minItems");
  EXPECT_EQ(problem_of(R"({"enum": []})"), "enum: must be a list of values");
  EXPECT_EQ(problem_of(R"({"type": "integer", "const": "x"})"),
            "const: must have a value that matches the other keywords");
  EXPECT_EQ(problem_of(R"({"const": "x", "enum": ["y"]})"),
            "enum: must have a value that matches the other keywords");
  EXPECT_EQ(problem_of(R"({"enum": [{}], "required": ["a"]})"),
            "required: required together with enum is not supported");
  EXPECT_EQ(
      problem_of(R"({"required": ["a"], "properties": {"b": {}}, "additionalProperties": false})"),
      "required: 'a' is not allowed by additionalProperties");
  EXPECT_EQ(problem_of(R"({"items": false, "minItems": 1})"),
            "minItems: must be 0 because items is false");
  EXPECT_EQ(problem_of(R"({"propertyNames": false})"),
            "propertyNames: propertyNames is not supported");
  EXPECT_EQ(problem_of(R"({"unevaluatedProperties": false})"),
            "unevaluatedProperties: unevaluatedProperties is not supported");
  EXPECT_EQ(problem_of("false"), ": must not be false, which allows no value");
  EXPECT_EQ(problem_of(R"({"type": []})"), "type: must be a string or a list of 1 to 7 strings");
  EXPECT_EQ(problem_of(R"({"enum": [1], "type": ["integer", "null", "string", "array", "object",
                           "number", "boolean", "null"]})"),
            "type: must be a string or a list of 1 to 7 strings");
  EXPECT_EQ(problem_of(R"({"type": "integer", "maximum": 1e30})"),
            "maximum: must be a 64-bit integer");
  EXPECT_EQ(problem_of(R"({"type": "integer", "maximum": 9223372036854775808})"),
            "maximum: must be a 64-bit integer");
  EXPECT_EQ(problem_of(R"({"type": "integer", "exclusiveMinimum": 9223372036854775807})"),
            "exclusiveMinimum: must be a 64-bit integer");
  EXPECT_EQ(problem_of(R"({"type": "integer", "minimum": -9223372036854775808,
                           "maximum": 9223372036854775807})"),
            "none");
  EXPECT_EQ(problem_of(R"({"type": "integer", "minimum": false})"), "minimum: must be a number");
  EXPECT_EQ(problem_of(R"({"type": "integer", "exclusiveMinimum": false, "format": "int32"})"),
            "none");
}

TEST(SchemaRules, RefusesWhatWouldBeTooLarge) {
  // Nested counts multiply. Each level is a rule of its own, so that the sizes add up instead.
  EXPECT_EQ(problem_of(R"({"type": "array", "maxItems": 900, "items": {"type": "array",
                            "maxItems": 900, "items": {"type": "string", "maxLength": 900}}})"),
            "none");
  EXPECT_TRUE(contains(error_of([] {
                         (void)json_schema_grammar(R"({"type": "string", "minLength": 99000})");
                       }).what(),
                       "too large"));
  std::string deep = R"({"type": "integer"})";
  for (int i = 0; i < 30; ++i)
    // The schema would double at each level if it were written twice.
    deep = R"({"type": "array", "items": )" + deep + "}";
  EXPECT_EQ(problem_of(deep), "none");
  const std::string long_text(std::size_t{256} << 10, 'x');
  EXPECT_TRUE(contains(error_of([&] {
                         (void)json_schema_grammar("{\"description\": \"" + long_text + "\"}");
                       }).what(),
                       "the limit is 262144 bytes"));
}

/// Returns `count` elements with commas: `before`, a number, `after`.
std::string list_of(int count, const std::string& before, const std::string& after) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ", ") + before + std::to_string(i) + after;
  return list;
}

TEST(SchemaRules, LargeSchemasTakeLinearTime) {
  // In quadratic time, each schema would take longer than half a minute.
  const std::string names = list_of(150'000, "\"", "\"");
  const std::string members = list_of(150'000, "\"", "\": {}");
  const std::string annotations = list_of(20'000, "\"x-", "\": 0");
  for (const std::string& schema :
       {R"({"properties": {)" + members + R"(}, "required": [)" + names + "]}",
        R"({"required": [)" + names + R"(], "additionalProperties": {)" + annotations + "}}",
        R"({"prefixItems": [)" + list_of(100'000, "{\"title\": \"", "\"}") + "]}",
        "{" + annotations + R"(, "enum": [)" + names + "]}"}) {
    const Json parsed = parse_json(schema, "schema");
    ByteGrammar grammar;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(contains(error_of([&] { (void)SchemaRules(grammar, parsed).compile(); }).what(),
                         "The schema is too large"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
        << schema.substr(0, 40);
  }
}

TEST(ToolCallGrammar, FollowsEachReferenceOnce) {
  // Each level refers to the next one 500 times, which makes 500^3 paths.
  std::string levels = R"("level3": {"type": "object"})";
  for (int i = 0; i < 3; ++i) {
    const std::string next = formatted(R"({{"$ref": "#/$defs/level{}", "x-number": )", i + 1);
    levels += formatted(R"(, "level{}": {{"anyOf": [{}]}})", i, list_of(500, next, "}"));
  }
  const auto begin = std::chrono::steady_clock::now();

  EXPECT_NO_THROW((void)tool_call_grammar(
      {{"f", R"({"$ref": "#/$defs/level0", "$defs": {)" + levels + "}}", /*is_strict=*/true}},
      false));

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace trireme::serve
