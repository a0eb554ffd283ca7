/// Nearly valid lines of jsonl: the reader must classify them, and agree with another parser.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/documents/utf8_repair.hpp"
#include "fuzz/mutator.hpp"
#include "text/json/odd_numbers.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {
namespace {

using testing::Mutator;

const std::vector<std::string> kSeeds{
    R"({"text": "a\n\u4f60\ud83d\ude00 plain"})",
    R"({"a": [1, {"b": null}], "text": "x\u4f60 你\n", "z": -1.5e3})",
    R"({"text": "first", "text": "last", "n": 18446744073709551615, "m": 1e308})",
    "\xEF\xBB\xBF{\"text\":\"bom \xF0\x9F\x98\x80 \xC3\xA9\"}",
    R"({"text": "\ud800 lone \udc00", "other": "\\ud800 \" \/ \b\f\r\t"})",
    "{\"text\": \"bytes \xFF\xE4\xBD\"}",
    R"([[[[[[[[[[{"text": "deep"}]]]]]]]]]])",
    R"({"conversations": [{"role": "user", "content": "hi"}], "text": ""})",
    " \t\r",
    R"({"text": 3})"};

const std::vector<std::string> kDictionary{"\"text\"",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           ":",
                                           ",",
                                           "\\u0000",
                                           "\\ud83d",
                                           "\\ude00",
                                           "\\",
                                           "\"",
                                           "null",
                                           "true",
                                           "1e999",
                                           "-0.0",
                                           "\n",
                                           "\r",
                                           "\x80",
                                           "\xC0\x80",
                                           "\xED\xA0\x80",
                                           "\xF4\x90\x80\x80",
                                           "\xEF\xBF\xBD",
                                           "\xEF\xBB\xBF",
                                           "[[[[[[[[[[[[[[[[[[[[[[[[",
                                           "{\"a\":{\"a\":{\"a\":",
                                           "99999999999999999999",
                                           "\\u12"};

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const text::Utf8Step step = text::utf8_step(text, at);
    if (!step.valid) return false;
    at += step.length;
  }
  return true;
}

/// Returns the field as nlohmann's parser reads it; throws if nlohmann's parser refuses the line.
/// That parser reads neither invalid text nor numbers in Python's form.
std::string by_other_parser(std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  const std::string mended = data_prep::repair_json_text(line).text;
  const std::string plain = text::quote_odd_numbers(mended).value_or(mended);
  return nlohmann::json::parse(plain)["text"].get<std::string>();
}

TEST(Fuzz, TextFieldReaderAgreesWithAnotherParser) {
  Mutator mutator(1, kDictionary);
  data_prep::TextFieldReader error("text", data_prep::OnBadText::error);
  data_prep::TextFieldReader skip("text", data_prep::OnBadText::skip);
  data_prep::TextFieldReader replace("text", data_prep::OnBadText::replace);
  std::size_t texts = 0;
  std::size_t repaired = 0;
  const long grown = testing::fuzz("jsonl", testing::fuzz_cases(1'000'000), [&](std::size_t) {
    std::string line = kSeeds[mutator.below(kSeeds.size())];
    mutator.mutate(line);
    const std::size_t size = line.size();
    line.append(data_prep::kRecordPadding, '\0');
    const data_prep::Record read{std::string_view(line).substr(0, size), 0};

    const data_prep::TextRecord strict = error.read(read);
    const data_prep::RecordStatus skipped = skip.read(read).status;
    const data_prep::TextRecord lenient = replace.read(read);

    switch (strict.status) {
      case data_prep::RecordStatus::text:
        ++texts;
        ASSERT_TRUE(is_utf8(strict.text)) << line;
        ASSERT_EQ(by_other_parser(read.text), strict.text) << line;
        ASSERT_EQ(lenient.text, strict.text) << line;
        ASSERT_EQ(lenient.replaced, 0U) << line;
        ASSERT_EQ(skipped, data_prep::RecordStatus::text) << line;
        break;
      case data_prep::RecordStatus::bad_text:
        ++repaired;
        ASSERT_EQ(skipped, data_prep::RecordStatus::bad) << line;
        ASSERT_EQ(lenient.status, data_prep::RecordStatus::text) << line;
        ASSERT_GT(lenient.replaced, 0U) << line;
        ASSERT_TRUE(is_utf8(lenient.text)) << line;
        break;
      default:
        ASSERT_EQ(lenient.status, strict.status) << line;
        ASSERT_EQ(skipped, strict.status) << line;
        ASSERT_EQ(strict.reason.empty(), strict.status == data_prep::RecordStatus::blank) << line;
    }
    const data_prep::Repaired again =
        data_prep::repair_json_text(data_prep::repair_json_text(read.text).text);
    ASSERT_EQ(again.replaced, 0U) << line;
  });
  std::printf("%zu good lines, %zu with bad text\n", texts, repaired);
  EXPECT_LT(grown, 200);
}

}  // namespace
}  // namespace trireme
