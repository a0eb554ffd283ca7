#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "serve/grammar/answer_grammar.hpp"
#include "serve/grammar/json_rules.hpp"
#include "serve/grammar/number_ranges.hpp"
#include "unit/core/scratch.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::serve {
namespace {

/// Returns "yes" for a text of the grammar, "part" for the beginning of one, "no" otherwise.
std::string fit(const TextGrammar& grammar, std::string_view text) {
  GrammarReader reader(grammar.grammar, grammar.start);
  GrammarReader::State state = reader.start();
  for (const char c : text) state = reader.step(state, static_cast<unsigned char>(c));
  if (state == GrammarReader::kDead) return "no";
  return reader.may_end(state) ? "yes" : "part";
}

TEST(ByteGrammar, RepeatsAndChooses) {
  const auto grammar = std::make_shared<ByteGrammar>();
  const std::uint32_t start = grammar->declare();
  grammar->define(start, {grammar->literal("a") + grammar->repeated(grammar->literal("b"), 1, 3) +
                              grammar->optional(grammar->literal("c")),
                          grammar->any_number(grammar->literal("d"))});
  const TextGrammar text{grammar, start};

  EXPECT_FALSE(grammar->has_left_recursion());
  EXPECT_EQ(fit(text, "a"), "part");
  EXPECT_EQ(fit(text, "ab"), "yes");
  EXPECT_EQ(fit(text, "abbbc"), "yes");
  EXPECT_EQ(fit(text, "abbbb"), "no");
  EXPECT_EQ(fit(text, ""), "yes");
  EXPECT_EQ(fit(text, std::string(1000, 'd')), "yes");
}

TEST(ByteGrammar, FindsRulesThatBeginWithThemselves) {
  ByteGrammar grammar;
  const std::uint32_t a = grammar.declare();
  const std::uint32_t b = grammar.declare();
  const GrammarSequence nothing = grammar.optional(grammar.literal("x"));
  grammar.define(a, {ByteGrammar::of_rule(b) + grammar.literal("y")});
  grammar.define(b, {nothing + ByteGrammar::of_rule(a), grammar.literal("z")});

  EXPECT_TRUE(grammar.has_left_recursion());
}

TEST(JsonGrammar, TakesObjectsAndNothingElse) {
  const TextGrammar json = json_object_grammar();
  for (const char* text :
       {"{}", "{ }", R"({"a":1})", "{\n  \"a\": [1, -2.5e+3, true, null, \"x\\n\\u00e9\"]\n}",
        R"({"a": {"b": [[], {}, [ ]]}, "c": "你好😀"})", "\n\n{}", R"({"\"": 0})"}) {
    EXPECT_EQ(fit(json, text), "yes") << text;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
  for (const char* text : {"[]", "1", "{a", R"({"a" 1)", R"({"a":01)", R"({"a":+)", R"({"a":1,})",
                           "{\"a\":\"\n", R"({"\x)", R"({"\ud800)", "{\"\xC0\x80", "{\"\xED\xA0",
                           "{}{", "{} ", "\n\n\n", R"({"a":1e123)"}) {
    EXPECT_EQ(fit(json, text), "no") << text;
  }
  EXPECT_EQ(fit(json, R"({"a": "unfinished)"), "part");
  EXPECT_EQ(fit(json, "{\"a\":" + std::string(2000, '[')), "part");  // any depth is allowed
}

TEST(GrammarReader, KeepsOnlyItsCurrentState) {
  const TextGrammar json = json_object_grammar();
  GrammarReader reader(json.grammar, json.start);
  GrammarReader::State state = reader.start();
  for (const char c : std::string_view(R"({"a": [[{"b": "x)"))
    state = reader.step(state, static_cast<unsigned char>(c));
  const std::size_t before = reader.num_states();

  state = reader.forget_all_but(state);

  EXPECT_LT(reader.num_states(), before);
  for (const char c : std::string_view(R"("}]]})")) {
    EXPECT_FALSE(reader.may_end(state));
    state = reader.step(state, static_cast<unsigned char>(c));
  }
  EXPECT_TRUE(reader.may_end(state));
}

TEST(GrammarReader, AmbiguityAddsUpAndDoesNotMultiply) {
  // At each level, a text has four readings until its last member; 200 levels would need 4^200
  // stacks.
  std::string alternatives;
  for (const char* op : {"add", "sub", "mul", "div"}) {
    alternatives +=
        R"({"type": "object", "properties": {"left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"},
                        "op": {"const": ")" +
        std::string(op) + R"("}}, "required": ["left", "right", "op"]}, )";
  }
  const TextGrammar grammar =
      json_schema_grammar(R"({"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [)" + alternatives +
                          R"({"type": "integer"}]}}})");
  constexpr int kLevels = 200;
  std::string text;
  for (int i = 0; i < kLevels; ++i) text += R"({"left": )";
  text += "1";
  for (int i = 0; i < kLevels; ++i)
    text += std::string(R"(, "right": 2, "op": ")") + (i % 2 == 0 ? "add" : "div") + "\"}";

  EXPECT_EQ(fit(grammar, text), "yes");
  EXPECT_EQ(fit(grammar, text.substr(0, text.size() - 1)), "part");
  EXPECT_EQ(fit(grammar, text + "}"), "no");
  EXPECT_EQ(fit(grammar, R"({"left": {"left": 1, "right": 2, "op": "pow"})"), "no");

  GrammarReader reader(grammar.grammar, grammar.start);
  GrammarReader::State state = reader.start();
  for (std::size_t i = 0; i < text.size(); ++i) {
    state = reader.step(state, static_cast<unsigned char>(text[i]));
    if (i % 97 == 0) state = reader.forget_all_but(state);
    ASSERT_NE(state, GrammarReader::kDead);
  }
  EXPECT_TRUE(reader.may_end(state));
}

TEST(GrammarReader, RulesThatMatchNothingComeBackAlsoWhereTheyBeganTwice) {
  // "(" and ")" in pairs, each pair in two ways, with empty rules everywhere.
  const auto grammar = std::make_shared<ByteGrammar>();
  const std::uint32_t pairs = grammar->declare();
  const GrammarSequence nothing = grammar->choice({{}, {}});
  const GrammarSequence inner = grammar->choice({nothing, nothing + ByteGrammar::of_rule(pairs)});
  grammar->define(pairs, {grammar->literal("(") + inner + nothing + grammar->literal(")") + nothing,
                          grammar->literal("(") + nothing + inner + grammar->literal(")")});
  const TextGrammar text{grammar, pairs};

  ASSERT_FALSE(grammar->has_left_recursion());
  EXPECT_EQ(fit(text, std::string(500, '(') + std::string(500, ')')), "yes");
  EXPECT_EQ(fit(text, std::string(500, '(') + std::string(499, ')')), "part");
  EXPECT_EQ(fit(text, "(()))"), "no");
  EXPECT_EQ(fit(text, ""), "part");
}

TEST(IntegersBetween, AreExactlyThose) {
  for (const auto& [least, most] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0},
                                                          {0, 9},
                                                          {5, 5},
                                                          {3, 17},
                                                          {0, 100},
                                                          {99, 101},
                                                          {-5, 5},
                                                          {-120, -7},
                                                          {-1, 0},
                                                          {-10, 999},
                                                          {200, 1005}}) {
    const auto grammar = std::make_shared<ByteGrammar>();
    const std::uint32_t start = grammar->declare();
    grammar->define(start, {integers_between(*grammar, least, most)});
    for (std::int64_t value = -1200; value <= 1200; ++value) {
      EXPECT_EQ(fit({grammar, start}, std::to_string(value)) == "yes",
                value >= least && value <= most)
          << value << " in [" << least << ", " << most << "]";
    }
    EXPECT_NE(fit({grammar, start}, "-0"), "yes");
    EXPECT_NE(fit({grammar, start}, "007"), "yes");
  }
  ByteGrammar open;
  EXPECT_NO_THROW((void)integers_between(open, 0, std::nullopt));
  EXPECT_THROW((void)integers_between(open, 2, 1), Error);
}

class MaskTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kVocab = 700;

  static std::shared_ptr<const SortedTokens> tokens() {
    static const auto table = std::make_shared<const SortedTokens>(
        text::samples::small_tokenizer(),
        std::vector<std::string_view>{"<tool_call>", "</tool_call>"}, kVocab);
    return table;
  }

  static const text::Tokenizer& tokenizer() {
    static const text::Tokenizer value = text::samples::small_tokenizer();
    return value;
  }

  static std::uint32_t end() { return *tokenizer().eos_id(); }

  static std::vector<std::uint32_t> allowed(generate::TokenMask& mask) {
    std::vector<std::uint64_t> bits((kVocab + 63) / 64, 0);
    EXPECT_TRUE(mask.allow(bits, kVocab));
    std::vector<std::uint32_t> ids;
    for (std::uint32_t id = 0; id < kVocab; ++id) {
      if ((bits[id / 64] >> id % 64 & 1) != 0) ids.push_back(id);
    }
    return ids;
  }

  /// Samples allowed tokens until the end. After `most` tokens, takes those that lead to the end.
  static std::string draw(generate::TokenMask& mask, std::mt19937& random, int most) {
    std::string text;
    for (int i = 0; i < 4000; ++i) {
      const std::vector<std::uint32_t> ids = allowed(mask);
      if (ids.empty()) {
        ADD_FAILURE() << "nothing may follow " << text;
        return text;
      }
      std::uint32_t id = ids[random() % ids.size()];
      if (i >= most) {  // towards the end: closing characters first
        for (const char* close : {"0", "]", "}", "\""}) {
          for (const std::uint32_t each : ids)
            if (tokenizer().token_bytes(each) == close) id = each;
        }
      }
      for (const std::uint32_t each : ids)
        if (each == end() && (i >= most || random() % 2 == 0)) id = each;
      mask.accept(id);
      if (id == end()) return text;
      text += tokenizer().token_bytes(id);
    }
    return text;
  }
};

TEST_F(MaskTest, AllowsExactlyWhatTheGrammarTakes) {
  const TextGrammar grammar = json_object_grammar();
  for (const std::string text :
       {"", "{", "{\"", "{\"a", "{\"a\": ", "{\"a\": \"\xE4", "{\"a\": 1", "{}"}) {
    GrammarMask mask(grammar, tokens(), {end()});
    for (const std::uint32_t id : tokenizer().encode(text.substr(0, text.find('\xE4'))))
      mask.accept(id);
    std::string so_far = text;
    if (const std::size_t cut = text.find('\xE4'); cut != std::string::npos)
      so_far = text.substr(0, cut);
    const std::vector<std::uint32_t> ids = allowed(mask);
    for (std::uint32_t id = 0; id < kVocab; ++id) {
      bool expected = fit(grammar, so_far + std::string(tokenizer().token_bytes(id))) != "no" &&
                      !tokenizer().token_bytes(id).empty();
      for (const text::AddedToken& token : tokenizer().added_tokens())
        if (token.id == id)
          expected = expected && token.content.find("tool_call") != std::string::npos;
      if (id == end()) expected = fit(grammar, so_far) == "yes";
      EXPECT_EQ(std::count(ids.begin(), ids.end(), id) == 1, expected)
          << "'" << so_far << "' then '" << tokenizer().token_bytes(id) << "'";
    }
  }
}

TEST_F(MaskTest, DrawsAreJsonThatTheSchemaDescribes) {
  const TextGrammar grammar = json_schema_grammar(
      R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 5},
          "age": {"type": "integer", "minimum": 0, "maximum": 130}, "tags": {"type": "array",
          "items": {"enum": ["a", "b"]}, "maxItems": 3}}, "required": ["name", "age"]})");
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    GrammarMask mask(grammar, tokens(), {end()});
    const std::string text = draw(mask, random, 60);
    const auto value = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    const std::string name = value.at("name");
    const auto characters =
        std::count_if(name.begin(), name.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_GE(characters, 1) << text;
    EXPECT_LE(characters, 5) << text;
    EXPECT_GE(value.at("age").get<int>(), 0) << text;
    EXPECT_LE(value.at("age").get<int>(), 130) << text;
    if (value.contains("tags")) {
      EXPECT_LE(value["tags"].size(), 3U) << text;
      for (const auto& tag : value["tags"]) EXPECT_TRUE(tag == "a" || tag == "b") << text;
    }
  }
}

TEST_F(MaskTest, DrawsOfAnyObjectAreJson) {
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    GrammarMask mask(json_object_grammar(), tokens(), {end()});
    const std::string text = draw(mask, random, 80);
    EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
  }
}

TEST_F(MaskTest, CallsAreWrittenWithTheirMarkers) {
  const TextGrammar grammar = tool_call_grammar(
      {{"add",
        R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})"},
       {"now", ""}},
      true);
  EXPECT_EQ(
      fit(grammar, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 12}}\n</tool_call>"),
      "yes");
  EXPECT_EQ(fit(grammar,
                "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>"),
            "part");
  EXPECT_EQ(fit(grammar, "<tool_call>\n{\"name\": \"rm"), "no");
  EXPECT_EQ(fit(grammar, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}"), "no");

  GrammarMask mask(grammar, tokens(), {end()});
  std::vector<std::string> texts;
  for (const std::uint32_t id : allowed(mask)) texts.emplace_back(tokenizer().token_bytes(id));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "<tool_call>"), 1);
}

TEST_F(MaskTest, OnlyAStrictToolMustHaveASchemaWithAGrammar) {
  const std::string dated = R"({"type": "object", "properties": {"on": {"type": "string",
                                "format": "iri"}}, "required": ["on"]})";
  const auto problem = [](const CallableTool& tool) -> std::string {
    try {
      (void)tool_call_grammar({{"now", "", true}, tool}, false);
    } catch (const ToolProblem& found) {
      return found.tool + " " + found.problem.path + ": " + found.problem.reason;
    }
    return "none";
  };
  EXPECT_EQ(problem({"add", dated, true}),
            "add properties.on.format: 'iri' is not supported; it must be date, time, date-time, "
            "duration, email, hostname, ipv4, ipv6, uri, uuid");
  EXPECT_EQ(problem({"add", R"({"type": "string"})", true}), "add : must allow objects only");
  EXPECT_EQ(problem({"add", dated, false}), "none");
  // The rest of the schema still applies.
  const TextGrammar loose = tool_call_grammar({{"add", dated}}, false);
  EXPECT_EQ(fit(loose, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}"), "no");
}

TEST_F(MaskTest, ArgumentsOfCallsAreObjectsWhateverTheSchemaSays) {
  const auto call = [](const std::string& schema, const std::string& arguments) {
    return fit(tool_call_grammar({{"f", schema}}, false),
               "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>");
  };
  const std::string large =
      R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 20000}}})";
  for (const std::string& schema :
       {std::string(), std::string("{}"), std::string(R"({"type": "string"})"),
        std::string(R"({"type": ["object", "null"]})"),
        std::string(R"({"anyOf": [{"type": "object"}, {"type": "integer"}]})"), std::string("true"),
        std::string(R"({"$ref": "#"})"), std::string(R"({"pattern": "x"})"), large}) {
    EXPECT_EQ(call(schema, R"({"b": 1})"), "yes") << schema;
    EXPECT_EQ(call(schema, "17"), "no") << schema;
    EXPECT_EQ(call(schema, "null"), "no") << schema;
  }
  for (
      const char* schema :
      {R"({"properties": {"a": {"type": "integer"}}, "required": ["a"]})",
       R"({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": {"type": "integer"}},
           "required": ["a"]}}})"}) {
    EXPECT_EQ(call(schema, R"({"a": 1})"), "yes") << schema;
    EXPECT_EQ(call(schema, "{}"), "no") << schema;
  }
  // Large schemas are enforced as long as they fit into the grammar together.
  std::vector<CallableTool> tools;
  for (int i = 0; i < 10; ++i)
    tools.push_back(
        {"t" + std::to_string(i),
         R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 2000}}})"});
  const TextGrammar many = tool_call_grammar(tools, true);
  EXPECT_EQ(fit(many, "<tool_call>\n{\"name\": \"t0\", \"arguments\": {\"b"), "no");
  EXPECT_EQ(fit(many, "<tool_call>\n{\"name\": \"t9\", \"arguments\": {\"b"), "part");
}

TEST_F(MaskTest, BeginsAfterTheThought) {
  GrammarMask mask(json_object_grammar(), tokens(), {end()}, std::vector<FreeText>{{"</think>"}});
  EXPECT_EQ(allowed(mask).size(), static_cast<std::size_t>(kVocab) - 1);  // everything but the end
  for (const std::uint32_t id : tokenizer().encode("so {what </thi")) mask.accept(id);
  for (const std::uint32_t id : tokenizer().encode("x </think>\n")) mask.accept(id);

  for (const std::uint32_t id : allowed(mask)) {
    const std::string text(tokenizer().token_bytes(id));
    EXPECT_NE(fit(json_object_grammar(), "\n" + text), "no") << text;
  }
  EXPECT_LT(allowed(mask).size(), 30U);
}

/// The model may call a tool or not: text is free until it opens a call.
TEST_F(MaskTest, HoldsAnOpenedCallToItsGrammar) {
  const TextGrammar grammar = tool_call_grammar(
      {{"add", R"({"properties": {"a": {"type": "integer"}}, "required": ["a"]})", true}}, false,
      CallStart::opened);
  const std::vector<FreeText> before{{"</think>"}, {"<tool_call>", true}};
  GrammarMask mask(grammar, tokens(), {end()}, before);
  const auto write = [&](std::string_view text) {
    for (const std::uint32_t id : tokenizer().encode(text)) mask.accept(id);
  };
  std::vector<std::uint64_t> bits((kVocab + 63) / 64, 0);
  write("is <tool_call> of use?");  // part of a thought
  EXPECT_EQ(allowed(mask).size(), static_cast<std::size_t>(kVocab) - 1);
  write("</think>Let me add.");
  EXPECT_FALSE(mask.allow(bits, kVocab));  // every token may follow, including the end
  write("<tool_call>");
  for (const std::uint32_t id : allowed(mask))
    EXPECT_TRUE(std::string_view("\n{\"name\": \"add\"").starts_with(tokenizer().token_bytes(id)));
  write("\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  EXPECT_EQ(allowed(mask), std::vector<std::uint32_t>{end()});
}

}  // namespace
}  // namespace trireme::serve
