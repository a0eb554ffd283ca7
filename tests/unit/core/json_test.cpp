#include "core/files/json.hpp"

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/files/file.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

using JsonFile = Scratch;

Error json_error(const std::string& text, const JsonLimits& limits = {}) {
  return error_of([&] { parse_json(text, "f.json", limits); });
}

std::string nested(int levels) {
  return std::string(static_cast<std::size_t>(levels), '[') +
         std::string(static_cast<std::size_t>(levels), ']');
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(parse_json(R"({"b":1,"a":[2,{"z":3}]})", "f").dump(), R"({"b":1,"a":[2,{"z":3}]})");
}

TEST(Json, NamesLineAndColumnOfASyntaxError) {
  const Error error = json_error("{\n  \"a\": 1,\n  \"b\" 2\n}");

  EXPECT_EQ(error.kind(), ErrorKind::data);
  EXPECT_TRUE(contains(error.what(), "f.json:3:7")) << error.what();
}

TEST(Json, SaysWhatIsWrongInPlainWords) {
  EXPECT_EQ(std::string(json_error(R"({"a": NaN})").what()),
            "f.json:1:7: not valid JSON: syntax error while parsing value - invalid literal; last "
            "read: '\"a\": N'; JSON has no NaN and no Infinity: write a number or null");
  EXPECT_TRUE(contains(json_error("[-Infinity]").what(), "JSON has no NaN and no Infinity"));
  EXPECT_EQ(std::string(json_error("[1e999]").what()),
            "f.json: not valid JSON: number overflow parsing '1e999'");
}

TEST(Json, RefusesDuplicateKeysOfOneObjectOnly) {
  EXPECT_TRUE(contains(json_error(R"({"a":1,"b":{},"a":2})").what(), "'a' appears twice"));
  EXPECT_TRUE(contains(json_error(R"([{"x":{"k":1,"k":1}}])").what(), "'k' appears twice"));
  EXPECT_NO_THROW(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", "f"));
}

TEST(Json, TakesTheLastValueOfAKeyLikePython) {
  EXPECT_EQ(parse_json(R"({"a":{"x":0},"b":1,"a":[2],"c":3,"a":{"y":4,"y":5}})", "f",
                       {.last_key_counts = true})
                .dump(),
            R"({"a":{"y":5},"b":1,"c":3})");
  EXPECT_EQ(
      parse_sorted_json(R"({"b":1,"a":2,"b":{"c":3}})", "f", {.last_key_counts = true}).dump(),
      R"({"a":2,"b":{"c":3}})");
}

TEST(Json, LimitsTheDepth) {
  EXPECT_NO_THROW(parse_json(nested(64), "f"));
  EXPECT_TRUE(contains(json_error(nested(65)).what(), "deeper than 64"));
  EXPECT_NO_THROW(parse_json(R"({"a":[1]})", "f", {.max_depth = 2}));
  EXPECT_EQ(json_error(R"({"a":[[1]]})", {.max_depth = 2}).kind(), ErrorKind::data);
  EXPECT_EQ(json_error(nested(1000000)).kind(), ErrorKind::data);  // does not exhaust the stack
}

TEST(Json, LimitsTheSize) {
  EXPECT_NO_THROW(parse_json("[1,2]", "f", {.max_bytes = 5}));
  EXPECT_TRUE(contains(json_error("[1,2]", {.max_bytes = 4}).what(), "the limit is 4"));
}

TEST(Json, ManyMembersAndItemsTakeLinearTime) {
  std::string list = "[";
  std::string members = "{";
  for (int i = 0; i < 200000; ++i) {  // quadratic time would take a minute
    list += "{\"a\":1},";
    members += formatted("\"{}\":0,", i);
  }
  const auto begin = std::chrono::steady_clock::now();

  const Json items = parse_json(list + "0]", "f");
  const Json object = parse_json(members + "\"x\":0}", "f");

  const Json repeated =
      parse_json(members + members.substr(1) + "\"x\":0}", "f", {.last_key_counts = true});

  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(items.size(), 200001U);
  EXPECT_EQ(object.size(), 200001U);
  EXPECT_EQ(repeated.size(), 200001U);
}

TEST(Json, RefusesWhatIsNotOneValue) {
  for (const char* text :
       {"", " ", "{} {}", "[1,]", "nul", "\"\xff\"", "01", "[1e999]", "{\"a\":1"}) {
    EXPECT_EQ(json_error(text).kind(), ErrorKind::data) << text;
  }
}

TEST(Json, GetChecksTypeAndPresence) {
  const Json object =
      parse_json(R"({"i":-3,"u":18446744073709551615,"d":1.5,"s":"x","b":true})", "f");

  EXPECT_EQ(json_get<std::int64_t>(object, "i", "f"), -3);
  EXPECT_EQ(json_get<std::uint64_t>(object, "u", "f"), ~0ULL);
  EXPECT_EQ(json_get<double>(object, "d", "f"), 1.5);
  EXPECT_EQ(json_get<double>(object, "i", "f"), -3.0);
  EXPECT_EQ(json_get<std::string>(object, "s", "f"), "x");
  EXPECT_TRUE(json_get<bool>(object, "b", "f"));
  EXPECT_EQ(error_of([&] { json_get<std::int64_t>(object, "u", "f"); }).kind(),
            ErrorKind::data);  // must not wrap
  EXPECT_EQ(error_of([&] { json_get<std::uint64_t>(object, "i", "f"); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { json_get<std::int64_t>(object, "d", "f"); }).kind(), ErrorKind::data);
  EXPECT_TRUE(contains(error_of([&] { json_get<bool>(object, "none", "f"); }).what(),
                       "key 'none' is missing"));
  EXPECT_EQ(error_of([&] { json_get<bool>(parse_json("[1]", "f"), "i", "f"); }).kind(),
            ErrorKind::data);
}

TEST_F(JsonFile, ReadsFromAFileAndNamesIt) {
  write_file_atomic(at("good.json"), "{\"a\": 1}");
  write_file_atomic(at("bad.json"), "{");

  EXPECT_EQ(json_get<std::int64_t>(read_json(at("good.json")), "a", "f"), 1);
  EXPECT_TRUE(contains(error_of([&] { read_json(at("bad.json")); }).what(), "bad.json:1:2"));
  EXPECT_EQ(error_of([&] { read_json(at("absent.json")); }).kind(), ErrorKind::data);
}

}  // namespace
}  // namespace trireme
