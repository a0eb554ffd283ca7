/// Inputs that are one JSON array: bounds of records, damage, ranks and resuming.

#include <gtest/gtest.h>

#include <random>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/pack/pack.hpp"
#include "unit/data_prep/compress.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::files_below;
using testing::gzip;
using testing::in_pieces;
using testing::pack_with;
using testing::TestDirectory;
using testing::write_text;
using testing::zstd;

struct Element {
  std::string text;
  std::uint64_t position = 0;
};

/// Returns records with brackets, quotes, escapes and newlines inside.
std::string some_record(std::mt19937& random, int number) {
  const std::vector<std::string> parts = {"]", "[",    "{",    "}",       ",",   "\\\"", "\\\\",
                                          "a", " \\n", "世界", "\\u0022", "\\/", "::"};
  std::string text;
  for (int i = static_cast<int>(random() % 12); i > 0; --i) text += parts[random() % parts.size()];
  if (random() % 40 == 0) text += std::string(5000, 'z');
  return random() % 8 == 0
             ? formatted("{{\n  \"n\": [{}, [1, {{}}]],\n  \"{}\": \"{}\"\n}}", number, text, text)
             : formatted("{{\"text\": \"{} {}\"}}", number, text);
}

/// Writes an array with varied white space, and remembers where its elements are.
std::string some_array(unsigned seed, int count, std::vector<Element>& elements) {
  std::mt19937 random(seed);
  const std::vector<std::string> spaces = {"", " ", "\n", "\r\n\t", "  \n  "};
  const auto space = [&] { return spaces[random() % spaces.size()]; };
  std::string text = (seed % 2 == 0 ? "\xEF\xBB\xBF" : "") + space() + "[" + space();
  for (int i = 0; i < count; ++i) {
    if (i != 0) text += space() + "," + space();
    const std::string scalars[] = {"17", "null", "\"a,]\\\"b\"", "[1, [2]]"};
    const std::string record = random() % 10 == 0 ? scalars[random() % 4] : some_record(random, i);
    elements.push_back({record, text.size()});
    text += record;
  }
  return text + space() + "]" + space();
}

class JsonArrays : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    write_text(path_ / name, content);
    return (path_ / name).string();
  }

  std::string error_of(const std::string& content) {
    try {
      inspect_records({file("wrong.json", content)});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      return error.what();
    }
    return "no error";
  }

  TestDirectory folder_{"json_arrays"};
  std::filesystem::path path_ = folder_.path();
};

void expect_elements(const std::vector<InputFile>& files, const std::vector<InputRange>& ranges,
                     const std::vector<Element>& expected) {
  ChunkReader reader(files, 1);
  reader.start(ranges);
  std::size_t next = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const RecordBatch batch = reader.read(i, 0);
    for (const Record& record : batch.records) {
      ASSERT_LT(next, expected.size());
      EXPECT_EQ(record.text, expected[next].text);
      EXPECT_EQ(record.position, expected[next].position);
      EXPECT_GE(record.position, ranges[i].begin);
      EXPECT_LT(record.position, ranges[i].end);
      ++next;
    }
  }
  EXPECT_EQ(next, expected.size());
}

TEST_F(JsonArrays, EveryElementIsReadOnceWhateverTheRanges) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::vector<Element> elements;
    const std::string text = some_array(seed, seed == 5 ? 0 : 300, elements);
    for (const std::string& content :
         {text, gzip(text), in_pieces(text, 3000, [](auto part) { return zstd(part); })}) {
      const auto files = inspect_records({file("a.json", content)});
      ASSERT_EQ(files[0].size, text.size());
      for (const std::uint64_t bytes :
           {text.size(), std::size_t{7}, std::size_t{100}, std::size_t{3001}})
        expect_elements(files, split_chunks(files, whole_files(files), bytes), elements);
    }
  }
}

TEST_F(JsonArrays, ARangeCanBeReadOnItsOwn) {
  std::vector<Element> elements;
  const std::string text = some_array(3, 200, elements);
  const auto files = inspect_records({file("a.json", text)});
  const auto chunks = split_chunks(files, whole_files(files), 500);
  for (std::size_t i = chunks.size(); i-- > 0;) {
    std::vector<Element> expected;
    for (const Element& element : elements)
      if (element.position >= chunks[i].begin && element.position < chunks[i].end)
        expected.push_back(element);
    expect_elements(files, {chunks[i]}, expected);
  }
}

TEST_F(JsonArrays, ALargeFileIsReadFromAccessPointsInsideIt) {
  std::string text = "[";
  std::vector<Element> elements;
  for (int i = 0; i < 200; ++i) {
    if (i != 0) text += ",\n";
    elements.push_back({formatted("{{\"text\": \"{}\"}}", std::string(70'000, 'a')), text.size()});
    text += elements.back().text;
  }
  text += "]";
  const auto files = inspect_records({file("large.json", text)});
  ASSERT_GE(files[0].points.size(), 2U);
  for (const AccessPoint& point : files[0].points) EXPECT_EQ(text.at(point.offset), '{');
  const std::uint64_t late = text.size() - 10'000'000;
  EXPECT_LT(files[0].format->start_cost(files[0], late), 5'000'000U);
  std::vector<Element> expected;
  for (const Element& element : elements)
    if (element.position >= late) expected.push_back(element);
  expect_elements(files, {{0, late, text.size()}}, expected);
}

TEST_F(JsonArrays, DamageIsReportedWithItsLineBeforeAnythingIsPacked) {
  const std::string record = R"({"text": "a"})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[" + record + ",\n" + record, "byte 29: the JSON array ends without ']'"},
      {"[" + record + ",\n{\"text\": \"a",
       "line 2, byte 16: the JSON array ends inside this record"},
      {"[" + record + ",\n{\"text\": \"a}]", "ends inside this record"},
      {"[" + record + ",\n]", "line 2, byte 16: a record must follow a comma"},
      {"[," + record + "]", "line 1, byte 1: a record must follow a comma"},
      {"[" + record + "\n" + record + "]", "line 2, byte 15: ',' or ']' must follow a record"},
      {"[" + record + "]\n" + record, "line 2, byte 16: text follows the end"},
      {"[1, 2]\n[3]\n", "line 2, byte 7: text follows the end"},
      {"[", "byte 1: the JSON array ends without ']'"}};
  for (const auto& [content, expected] : cases) {
    for (const std::string& stored : {content, gzip(content), zstd(content)}) {
      const std::string told = error_of(stored);
      EXPECT_NE(told.find(expected), std::string::npos) << content << "\n" << told;
    }
  }
  for (const std::string& content :
       {std::string("[]"), std::string(" [ ]\n"), std::string(9000, ' ') + "[]"})
    EXPECT_EQ(error_of(content), "no error") << content;
}

class PackedArrays : public JsonArrays {
 protected:
  PackedArrays() {
    write_synth((path_ / "corpus.jsonl").string(), 300, 5, false);
    tokenizer_ = testing::tokenizer_of(path_, (path_ / "corpus.jsonl").string());
    const std::string lines = read_file(path_ / "corpus.jsonl");
    array_ = "[" + lines.substr(0, lines.size() - 1) + "]";
    for (std::size_t at = 0; (at = array_.find("}\n", at)) != std::string::npos; ++at)
      array_.replace(at, 2, "},\n");
  }

  PackConfig config(const std::string& input, const std::string& output) const {
    PackConfig config = testing::pack_config((path_ / input).string(), path_ / output);
    config.unit_bytes = 9'000;
    config.threads = 2;
    return config;
  }

  /// Returns the content of a set without the names of its inputs.
  std::vector<std::int64_t> tokens(const std::string& output) const {
    const data::TokenSet set = data::TokenSet::open(path_ / output);
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < set.num_shards(); ++i) {
      std::vector<std::int64_t> shard(set.shard(i).num_tokens());
      set.shard(i).read_tokens(0, shard);
      ids.insert(ids.end(), shard.begin(), shard.end());
    }
    return ids;
  }

  std::string tokenizer_;
  std::string array_;
};

TEST_F(PackedArrays, HaveTheTokensOfTheSameLinesOnAnyNumberOfRanks) {
  pack_with(config("corpus.jsonl", "lines"), tokenizer_, nullptr);
  for (const char* name : {"a.json", "b.json.gz", "c.json.zst"}) {
    const std::string kind = name;
    file(name, kind.ends_with("gz") ? gzip(array_)
               : kind.ends_with("zst")
                   ? in_pieces(array_, 9'000, [](auto part) { return zstd(part); })
                   : array_);
    pack_with(config(name, kind + ".one"), tokenizer_, nullptr);
    EXPECT_EQ(tokens(kind + ".one"), tokens("lines")) << name;
    const auto one = files_below(path_ / (kind + ".one"));
    EXPECT_GT(one.size(), 5U);
    for (const int ranks : {2, 3}) {
      const std::string output = formatted("{}.{}", name, ranks);
      comm::run_ranks(ranks, [&](comm::Communicator& world) {
        pack_with(config(name, output), tokenizer_, &world);
      });
      EXPECT_EQ(files_below(path_ / output), one) << output;
    }
  }
}

TEST_F(PackedArrays, AreResumedFromTheMissingShards) {
  for (const char* name : {"a.json", "b.json.gz"}) {
    file(name, name[0] == 'b' ? gzip(array_) : array_);
    const std::string output = formatted("{}.set", name);
    pack_with(config(name, output), tokenizer_, nullptr);
    const auto whole = files_below(path_ / output);
    for (const int ranks : {1, 2, 3}) {
      for (const char* lost : {"manifest.json", "shard-00002.h5", "shard-00004.h5"})
        std::filesystem::remove(path_ / output / lost);
      comm::run_ranks(ranks, [&](comm::Communicator& world) {
        const PackReport report = pack_with(config(name, output), tokenizer_, &world);
        if (world.rank() == 0) {
          EXPECT_EQ(report.kept + 2, report.partitions);
        }
      });
      EXPECT_EQ(files_below(path_ / output), whole) << ranks;
    }
  }
}

TEST_F(PackedArrays, AreFoundInFilesNamedJsonl) {
  file("a.jsonl", array_);
  PackConfig asked = config("a.jsonl", "set");
  pack_with(asked, tokenizer_, nullptr);
  EXPECT_EQ(data::TokenSet::open(path_ / "set").manifest().counts.bad_lines, 0U);
  file("b.json", "[{\"text\": \"a\"}, 3, null, [{\"text\": \"b\"}]]");
  asked = config("b.json", "few");
  pack_with(asked, tokenizer_, nullptr);
  const data::Manifest manifest = data::TokenSet::open(path_ / "few").manifest();
  EXPECT_EQ(manifest.counts.documents, 1U);
  ASSERT_EQ(manifest.bad.size(), 3U);
  EXPECT_EQ(manifest.bad[0], "b.json:16: not a JSON object");
}

}  // namespace
}  // namespace trireme::data_prep
