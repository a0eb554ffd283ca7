/// Compares patterns with std::regex, which implements the regular expressions of ECMAScript for
/// ASCII, and ranges of numbers with comparisons.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "serve/grammar/answer_grammar.hpp"
#include "serve/grammar/grammar_reader.hpp"
#include "serve/grammar/schema_rules.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::serve {
namespace {

class SchemaTexts {
 public:
  explicit SchemaTexts(const Json& schema)
      : grammar_(json_schema_grammar(schema.dump())), reader_(grammar_.grammar, grammar_.start) {}

  bool takes(const std::string& text) {
    GrammarReader::State state = reader_.start();
    for (const char c : text) state = reader_.step(state, static_cast<unsigned char>(c));
    return reader_.may_end(state);
  }

  /// Returns a random text of the grammar with at most `most` bytes; "" if the walk gets longer.
  std::string random(std::mt19937& random, std::size_t most) {
    std::string text;
    GrammarReader::State state = reader_.start();
    while (text.size() < most) {
      std::string bytes;
      for (int byte = 1; byte < 256; ++byte)
        if (reader_.step(state, static_cast<unsigned char>(byte)) != GrammarReader::kDead)
          bytes += static_cast<char>(byte);
      if (bytes.empty() || (reader_.may_end(state) && random() % 3 == 0)) return text;
      // Quotes are more likely than other bytes, so that strings end.
      const bool may_close = bytes.find('"') != std::string::npos && random() % 3 == 0;
      text += may_close ? '"' : bytes[random() % bytes.size()];
      state = reader_.step(state, static_cast<unsigned char>(text.back()));
    }
    return "";
  }

 private:
  TextGrammar grammar_;
  GrammarReader reader_;
};

Json schema_of(const std::string& pattern) {
  return {{"type", "string"}, {"pattern", pattern}};
}

template <class Items>
auto any_of(std::mt19937& random, const Items& items) {
  return items[random() % items.size()];
}

/// Returns a random pattern in which no part that may be empty is repeated without a limit.
std::string random_terms(std::mt19937& random, int depth);

std::string random_one(std::mt19937& random, int depth) {
  static const std::vector<std::string> kOnes{
      "a",    "b",      "-",   "\\d",  "\\w",    "[a-c]", "[^ab]", "\\.",     "\"",
      "\\\\", "[\\d_]", "\\s", "[-a]", "[^\\w]", ".",     "\\x41", "\\u0062", "[\"\\\\]"};
  if (depth == 0 || random() % 3 != 0) return any_of(random, kOnes);
  return (random() % 2 == 0 ? "(?:" : "(") + random_terms(random, depth - 1) + "|" +
         random_terms(random, depth - 1) + ")";
}

std::string random_terms(std::mt19937& random, int depth) {
  static const std::vector<std::string> kCounts{"", "", "", "?", "{2}", "{1,3}", "{0,2}", "??"};
  static const std::vector<std::string> kRepeats{"*", "+", "{2,}", "*?"};
  std::string terms;
  for (unsigned i = 0; i <= random() % 3; ++i)
    terms += random() % 4 == 0 ? random_one(random, 0) + any_of(random, kRepeats)
                               : random_one(random, depth) + any_of(random, kCounts);
  return terms;
}

std::string random_value(std::mt19937& random) {
  std::string value;
  for (unsigned i = 0; i < random() % 7; ++i)
    value += any_of(random, std::string("aabbcAB_01-. \"\\\n~"));
  return value;
}

TEST(Patterns, MatchTheSameStringsAsTheStandardLibrary) {
  std::mt19937 random(7);
  std::size_t num_matches = 0;
  for (int i = 0; i < 200; ++i) {
    std::string pattern = random_terms(random, 2);
    if (random() % 2 == 0) pattern = "^(?:" + pattern + ")$";
    SCOPED_TRACE(pattern);
    const std::regex regex(pattern, std::regex::ECMAScript);
    SchemaTexts texts(schema_of(pattern));
    for (int j = 0; j < 40; ++j) {
      const std::string value = random_value(random);
      const bool matches = std::regex_search(value, regex);
      num_matches += matches ? 1 : 0;
      ASSERT_EQ(texts.takes(Json(value).dump()), matches) << value;
    }
    for (int j = 0; j < 5; ++j) {
      const std::string text = texts.random(random, 60);
      if (text.empty()) continue;
      const std::string value = Json::parse(text).get<std::string>();
      const bool is_ascii = std::all_of(value.begin(), value.end(), [](char c) { return c > 0; });
      if (!is_ascii) continue;
      ASSERT_TRUE(std::regex_search(value, regex)) << text;
    }
  }
  EXPECT_GT(num_matches, 500U);
}

TEST(Patterns, CharactersBeyondAsciiAreWholeCharacters) {
  SchemaTexts letters(schema_of("^[À-ÿα-ω中-亓😀-😂]{2}$"));
  for (const char* good : {"éω", "中😁", "ÿÀ"})
    EXPECT_TRUE(letters.takes(Json(good).dump())) << good;
  for (const char* bad : {"é", "éa", "亖中", "😃😀", "éωα"})
    EXPECT_FALSE(letters.takes(Json(bad).dump())) << bad;
  SchemaTexts any(schema_of("^.$"));
  EXPECT_TRUE(any.takes("\"\U0010FFFF\""));
  EXPECT_TRUE(any.takes(R"("\"")"));
  EXPECT_FALSE(any.takes(R"("\n")"));
  EXPECT_FALSE(any.takes("\"\xed\xa0\x80\"")) << "a surrogate";
}

TEST(Patterns, ExpressionsWithoutAGrammarAreRefused) {
  for (const auto& [pattern, reason] : std::vector<std::pair<const char*, const char*>>{
           {"(a*)*", "a repetition of something that may be empty at character 1"},
           {"a(", "a group without an end"},
           {"a)", "an unexpected ')' or '$'"},
           {"a$b", "an unexpected ')' or '$'"},
           {"(^a)", "an unexpected '^'"},
           {"(a$)", "'$' inside a group"},
           {"\\bword", "the escape \\b at character 2"},
           {"(a)\\1", "the escape \\1"},
           {"[b-a]", "a range in the wrong order"},
           {"[a", "an incomplete expression"},
           {"[]", "a class without characters"},
           {"a{3,2}", "a maximum below its minimum"},
           {"a{x}", "a quantifier without a number"},
           {"*a", "an unexpected '*'"},
           {"\\p{L}", "the escape \\p"},
           {"(?<!a)b", "a lookaround"}}) {
    try {
      SchemaTexts texts(schema_of(pattern));
      ADD_FAILURE() << pattern;
    } catch (const SchemaProblem& problem) {
      EXPECT_EQ(problem.path, "pattern");
      EXPECT_NE(problem.reason.find(reason), std::string::npos)
          << pattern << ": " << problem.reason;
    }
  }
}

TEST(NumberRanges, HaveTheNumbersBetweenTheirLimits) {
  std::mt19937 random(3);
  const std::vector<double> scales{1, 10, 100, 1000};
  const auto number = [&] {
    const double scale = any_of(random, scales);
    return std::round((static_cast<double>(random() % 4001) - 2000) / any_of(random, scales)) /
           scale;
  };
  std::size_t num_inside = 0;
  for (int i = 0; i < 500; ++i) {
    Json schema = {{"type", "number"}};
    double least = -1e300;
    double most = 1e300;
    const bool excludes_least = random() % 2 == 0;
    const bool excludes_most = random() % 2 == 0;
    if (random() % 4 != 0)
      schema[excludes_least ? "exclusiveMinimum" : "minimum"] = least = number();
    if (random() % 4 != 0 || least < -1e200)
      schema[excludes_most ? "exclusiveMaximum" : "maximum"] = most = number();
    SCOPED_TRACE(schema.dump());
    const auto is_inside = [&](double value) {
      return (excludes_least ? value > least : value >= least) &&
             (excludes_most ? value < most : value <= most);
    };
    if (least > most || (least == most && (excludes_least || excludes_most))) {
      EXPECT_EQ(error_of([&] { SchemaTexts texts(schema); }).kind(), ErrorKind::usage);
      continue;
    }
    SchemaTexts texts(schema);
    for (int j = 0; j < 60; ++j) {
      const double value = random() % 3 == 0 ? (random() % 2 == 0 ? least : most) : number();
      if (std::abs(value) > 1e200) continue;
      std::string text = Json(value).dump();
      if (text.starts_with("-0.0") && value == 0) continue;
      num_inside += is_inside(value) ? 1 : 0;
      ASSERT_EQ(texts.takes(text), is_inside(value)) << text;
      text += text.find('.') == std::string::npos ? ".00" : "0";
      ASSERT_EQ(texts.takes(text), is_inside(value)) << text;
    }
    for (int j = 0; j < 10; ++j) {
      const std::string text = texts.random(random, 40);
      if (text.empty()) continue;
      ASSERT_TRUE(is_inside(Json::parse(text).get<double>())) << text;
    }
  }
  EXPECT_GT(num_inside, 3000U);
}

}  // namespace
}  // namespace trireme::serve
