#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "core/error.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/documents/utf8_repair.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::TestDirectory;
using testing::write_text;

TextRecord read_line(TextFieldReader& reader, std::string text, std::uint64_t offset = 5) {
  static std::string buffer;
  buffer = text + std::string(kRecordPadding, '\0');
  return reader.read({std::string_view(buffer).substr(0, text.size()), offset});
}

TEST(TextFieldReader, ReadsTheFieldOfWholeValidLines) {
  TextFieldReader reader("text", OnBadText::error);

  EXPECT_EQ(read_line(reader, R"({"text": "a\n\u4f60\ud83d\ude00"})").text, "a\n你😀");
  EXPECT_EQ(read_line(reader, R"({"id": 1, "text": "first", "text": "last"} )").text, "last");
  EXPECT_EQ(read_line(reader, "\xEF\xBB\xBF{\"text\":\"bom\"}", 0).text, "bom");
  EXPECT_EQ(read_line(reader, R"({"text": "nul \u0000 inside"})").text,
            std::string_view("nul \0 inside", 12));
  EXPECT_EQ(read_line(reader, " \t\r").status, RecordStatus::blank);
}

TEST(TextFieldReader, SaysWhyALineIsBad) {
  TextFieldReader reader("text", OnBadText::error);
  const auto reason = [&](const std::string& text) {
    const TextRecord record = read_line(reader, text);
    EXPECT_EQ(record.status, RecordStatus::bad) << text;
    return record.reason;
  };

  EXPECT_NE(reason(R"({"text": "a"} trailing)").find("not valid JSON"), std::string::npos);
  for (const char* line : {R"({"text": "a"},)", "{\"text\": \"a\"} , \r"})
    EXPECT_NE(reason(line).find("a comma follows the record"), std::string::npos) << line;
  for (const char* line : {R"({"text": "a",)", R"({"text": "a"},,)", ","})
    EXPECT_EQ(reason(line).find("a comma follows"), std::string::npos) << line;
  EXPECT_NE(reason(R"({"text": "a", broken})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(reason(R"({"text": "\x"})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(reason("{").find("not valid JSON"), std::string::npos);
  EXPECT_EQ(reason(R"(["text"])"), "not a JSON object");
  EXPECT_EQ(reason(R"({"other": "a"})"), "no field 'text'");
  EXPECT_EQ(reason(R"({"text": 3})"), "field 'text' is not a text");
  EXPECT_EQ(reason(R"({"text": null})"), "field 'text' is null");
  EXPECT_EQ(reason(R"({"text": NaN})"), "field 'text' is not a text");
  EXPECT_EQ(reason(R"({"text": 123456789012345678901})"), "field 'text' is not a text");
  for (const char* text : {R"({"text": "a", "n": 0123456789012345678901})",
                           R"({"text": "a", "n": nan})", R"({"text": "a", "n": 1e999e})"})
    EXPECT_NE(reason(text).find("not valid JSON"), std::string::npos) << text;
}

TEST(TextFieldReader, ReadsTheNumbersThatPythonReads) {
  TextFieldReader reader("text", OnBadText::error);
  for (const char* number : {"123456789012345678901234567890", "-99999999999999999999", "1e999",
                             "-1.5E+400", "NaN", "[Infinity, -Infinity]"}) {
    const TextRecord record =
        read_line(reader, cat(R"({"a": "\"1e999", "n": )", number, R"(, "text": "1e999 \n"})"));
    EXPECT_EQ(record.status, RecordStatus::text) << number << ": " << record.reason;
    EXPECT_EQ(record.text, "1e999 \n");
  }
}

TEST(TextFieldReader, BadTextOutsideTheFieldIsNotLookedAt) {
  for (const OnBadText policy : {OnBadText::error, OnBadText::skip, OnBadText::replace}) {
    TextFieldReader reader("text", policy);
    for (const char* line :
         {R"({"a": "\ud800", "text": "fi\ufffene"})",
          R"({"text": "fi\ufffene", "b": {"\udc00": [NaN, 12345678901234567890123]}})"}) {
      const TextRecord record = read_line(reader, line);
      EXPECT_EQ(record.status, RecordStatus::text) << line << record.reason;
      EXPECT_EQ(record.text, "fi\ufffene");
      EXPECT_EQ(record.replaced, 0U);
    }
  }
  TextFieldReader replace("text", OnBadText::replace);
  EXPECT_EQ(read_line(replace, R"({"a": "\ud800\ud800", "text": "\ufffe\ud800"})").replaced, 1U);
}

TEST(TextFieldReader, FollowsThePolicyForBadText) {
  const std::string bad[] = {R"({"text": "a\ud800b"})", R"({"text": "a\udc00b"})",
                             R"({"text": "a\ud800\u0041"})", "{\"text\": \"a\xFF\xE4\xBD b\"}"};
  const std::string replaced[] = {"a\uFFFDb", "a\uFFFDb", "a\uFFFD\u0041", "a\uFFFD\uFFFD b"};
  const std::uint64_t counts[] = {1, 1, 1, 2};
  TextFieldReader error("text", OnBadText::error);
  TextFieldReader skip("text", OnBadText::skip);
  TextFieldReader replace("text", OnBadText::replace);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read_line(error, bad[i]).status, RecordStatus::bad_text) << bad[i];
    EXPECT_EQ(read_line(skip, bad[i]).status, RecordStatus::bad) << bad[i];
    const TextRecord record = read_line(replace, bad[i]);

    EXPECT_EQ(record.status, RecordStatus::text) << bad[i];
    EXPECT_EQ(record.text, replaced[i]);
    EXPECT_EQ(record.replaced, counts[i]);
  }
}

TEST(RepairJsonText, KeepsValidText) {
  const std::string good = R"({"text": "\\ud800 \" \u00e9 \ud83d\ude00 你😀é"})";

  const Repaired repaired = repair_json_text(good);

  EXPECT_EQ(repaired.text, good);
  EXPECT_EQ(repaired.replaced, 0U);
}

TEST(TextFieldReader, SurvivesRandomDamage) {
  std::mt19937 random(7);
  const std::string good =
      R"({"a": [1, {"b": null}], "text": "x\u4f60\ud83d\ude00 你\n", "z": -1.5e3})";
  for (const OnBadText policy : {OnBadText::error, OnBadText::replace}) {
    TextFieldReader reader("text", policy);
    for (int i = 0; i < 20000; ++i) {
      std::string line = good;
      for (unsigned k = random() % 4; k > 0; --k)
        line[random() % line.size()] = static_cast<char>(random());
      line.resize(line.size() - random() % 3);
      const TextRecord record = read_line(reader, line);
      if (record.status == RecordStatus::bad) {
        ASSERT_FALSE(record.reason.empty());
      }
      if (record.status == RecordStatus::text) {
        ASSERT_TRUE(repair_json_text(record.text).replaced == 0 ||
                    record.text.find('\\') != std::string_view::npos);
      }
    }
  }
}

std::vector<std::pair<std::uint64_t, std::string>> lines_by_chunks(
    const std::filesystem::path& path, std::uint64_t chunk_bytes) {
  const std::vector<InputFile> files = inspect_inputs({path.string()});
  const auto source = files[0].format->open(files[0]);
  std::vector<std::pair<std::uint64_t, std::string>> lines;
  for (const InputRange& chunk : split_chunks(files, whole_files(files), chunk_bytes)) {
    const RecordBatch batch = source->read(chunk);
    for (const Record& line : batch.records) lines.emplace_back(line.position, line.text);
  }
  return lines;
}

TEST(JsonLines, GivesEachLineOnceForEveryChunkSize) {
  const TestDirectory folder("line_chunk");
  const std::string texts[] = {"",
                               "\n",
                               "a",
                               "a\n",
                               "a\nbb\n\nccc",
                               "\n\n\n",
                               "0123456789012345678901234567890123456789\nx\n"};
  for (const std::string& text : texts) {
    write_text(folder.path() / "f", text);
    std::vector<std::pair<std::uint64_t, std::string>> expected;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      expected.emplace_back(at, text.substr(at, end - at));
      at = end + 1;
    }
    for (std::uint64_t chunk = 1; chunk < 60; ++chunk) {
      ASSERT_EQ(lines_by_chunks(folder.path() / "f", chunk), expected) << chunk << ": " << text;
    }
  }
}

TEST(JsonLines, ReadsLinesFarLongerThanAChunk) {
  const TestDirectory folder("line_chunk_long");
  const std::string text = std::string(300'000, 'x') + "\n" + std::string(70'000, 'y') + "\nz";
  write_text(folder.path() / "f", text);

  const auto lines = lines_by_chunks(folder.path() / "f", 1000);

  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].second.size(), 300'000U);
  EXPECT_EQ(lines[1].second.size(), 70'000U);
  EXPECT_EQ(lines[2].first, 370'002U);
}

TEST(Inputs, AreNamedFromTheirCommonDirectoryAndCutIntoPartitions) {
  const TestDirectory folder("inputs");
  std::filesystem::create_directories(folder.path() / "a" / "b");
  write_text(folder.path() / "a" / "x.jsonl", std::string(10, 'x'));
  write_text(folder.path() / "a" / "b" / "y.jsonl", std::string(25, 'y'));
  const auto files = inspect_inputs(
      {(folder.path() / "a/x.jsonl").string(), (folder.path() / "a/b/y.jsonl").string()});

  const auto partitions = plan_partitions(files, 20);

  EXPECT_EQ(files[0].name, "x.jsonl");
  EXPECT_EQ(files[1].name, "b/y.jsonl");
  ASSERT_EQ(partitions.size(), 2U);
  ASSERT_EQ(partitions[0].size(), 2U);
  EXPECT_EQ(partitions[0][1].end, 10U);
  EXPECT_EQ(partitions[1][0].begin, 10U);
  EXPECT_EQ(partitions[1][0].end, 25U);
  EXPECT_EQ(plan_partitions({}, 20).size(), 1U);
}

TEST(Inputs, RefuseWhatCannotBeRead) {
  const TestDirectory folder("inputs_bad");
  write_text(folder.path() / "x.jsonl", "x");
  write_text(folder.path() / "x.jsonl.gz", "x");
  const std::string good = (folder.path() / "x.jsonl").string();

  EXPECT_THROW(inspect_inputs({}), Error);
  EXPECT_THROW(inspect_inputs({good, good}), Error);
  EXPECT_THROW(inspect_inputs({good + ".gz"}), Error);
  EXPECT_THROW(inspect_inputs({good + ".none"}), Error);
}

TEST(Inputs, OnlyContentThatBeginsWithABracketIsAJsonArray) {
  const TestDirectory folder("inputs_array");
  const std::string path = (folder.path() / "a.jsonl").string();
  const auto is_array = [&](const std::string& content) {
    write_text(path, content);
    return inspect_records({path})[0].format != &input_formats().front();
  };
  const std::string record = R"({"text": "a"})";
  for (const std::string& array : {"[" + record + "]", "\n \t[\n  " + record + "\n]",
                                   "\xEF\xBB\xBF[" + record + "]", std::string(9000, ' ') + "[]"})
    EXPECT_TRUE(is_array(array)) << array;
  for (const std::string& lines : {record + "\n[1]\n", std::string(), std::string(" \n"), record})
    EXPECT_FALSE(is_array(lines)) << lines;
}

}  // namespace
}  // namespace trireme::data_prep
