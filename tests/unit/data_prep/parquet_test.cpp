/// Parquet files as inputs: rows as JSON, planning by row groups, ranks, and damage.

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "data_prep/input/inputs.hpp"
#include "unit/data_prep/small_corpus.hpp"

#ifdef TRIREME_WRITE_PARQUET
#include <dlfcn.h>

#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/inspect/inspect_document.hpp"
#include "data_prep/pack/pack.hpp"
#include "unit/data_prep/write_parquet.hpp"
#endif

namespace trireme::data_prep {
namespace {

using testing::TestDirectory;
using testing::write_text;

#ifndef TRIREME_WRITE_PARQUET

TEST(Parquet, IsRefusedByNameWithoutArrow) {
  const TestDirectory folder("parquet");
  write_text(folder.path() / "a.parquet", "PAR1 and more PAR1");

  try {
    inspect_records({folder.path().string()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("a.parquet is a Parquet file"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("Build it with Arrow"), std::string::npos);
  }
}

#else

using testing::files_below;
using testing::pack_with;

using testing::ParquetColumn;

void write_parquet(const std::filesystem::path& path, const std::vector<ParquetColumn>& columns,
                   std::int64_t group_rows, const std::string& codec = "snappy") {
  static const auto write = [] {  // has its own symbol scope, as the module of the program
    void* module = ::dlopen(TRIREME_WRITE_PARQUET, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (module == nullptr) fail(ErrorKind::internal, "{}", ::dlerror());
    return reinterpret_cast<testing::WriteParquet*>(::dlsym(module, "trireme_write_parquet"));
  }();
  std::string problem;
  write(path.string(), columns, group_rows, codec, problem);
  ASSERT_EQ(problem, "");
}

std::vector<std::string> rows_of(const std::string& path, std::uint64_t bytes = 1 << 20) {
  const std::vector<InputFile> files = inspect_records({path});
  std::vector<std::string> rows;
  const auto source = files[0].format->open(files[0]);
  for (const InputRange& chunk : split_chunks(files, whole_files(files), bytes)) {
    for (const Record& record : source->read(chunk).records) {
      EXPECT_EQ(record.position, rows.size());
      rows.emplace_back(record.text);
    }
  }
  return rows;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    return error.what();
  }
  return "no error";
}

/// Everything in a set that training reads, in order of the documents.
Json content_of(const std::filesystem::path& directory) {
  const data::TokenSet set = data::TokenSet::open(directory);
  set.verify(false);
  Json content = Json::array();
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    const data::TokenShard& shard = set.shard(s);
    const std::vector<std::uint64_t> offsets = shard.document_offsets();
    for (std::size_t doc = 0; doc + 1 < offsets.size(); ++doc) {
      std::vector<std::int64_t> ids(offsets[doc + 1] - offsets[doc]);
      shard.read_tokens(offsets[doc], ids);
      Json spans = Json::array();
      if (shard.has_spans())
        for (const data::Span& span : shard.target_spans(doc))
          spans.push_back({span.begin, span.end});
      content.push_back({ids, spans});
    }
  }
  return content;
}

class Parquet : public ::testing::Test {
 protected:
  /// Packs the input with shards of 4,000 bytes, and returns the directory of the set.
  std::filesystem::path packed(const std::string& input, const std::string& output,
                               const std::string& kind, comm::Communicator* world = nullptr) {
    PackConfig config = testing::pack_config((path_ / input).string(), path_ / output);
    config.unit_bytes = 4000;
    config.documents.kind = kind;
    if (kind == "sft") config.documents.chat.format = "chatml";
    pack_with(config, tokenizer(), world);
    return path_ / output;
  }

  const std::string& tokenizer() {
    static const TestDirectory folder("parquet_tokenizer");
    static const std::string path = [] {
      write_synth((folder.path() / "corpus.jsonl").string(), 200, 3, false);
      return testing::tokenizer_of(folder.path(), (folder.path() / "corpus.jsonl").string());
    }();
    return path;
  }

  TestDirectory folder_{"parquet"};
  std::filesystem::path path_ = folder_.path();
};

TEST_F(Parquet, RowsAreTheJsonThatPythonWrites) {
  const std::string path = (path_ / "types.parquet").string();
  write_parquet(path,
                {{"te\"xt", "utf8", R"(["a \"b\" \\ \n\t", "世界 \u0001", ""])"},
                 {"large", "large_utf8", R"(["x", null, "y"])"},
                 {"bytes", "binary", R"(["p", "q", null])"},
                 {"i", "int64", "[-9223372036854775808, null, 7]"},
                 {"u", "uint8", "[255, 0, null]"},
                 {"d", "float64", "[0.1, 1e300, -2.5]"},
                 {"f", "float32", "[0.1, NaN, -Inf]"},
                 {"b", "boolean", "[true, false, null]"},
                 {"list", "lists", "[[[1, 2], []], [], null]"},
                 {"pairs", "pairs", R"([[{"k": "a", "n": 1}, null], [], [{"k": null, "n": 2}]])"},
                 {"map", "map", R"([[["a", 1], ["b", null]], [], null])"},
                 {"cat", "category", R"(["u", "v", "u"])"},
                 {"day", "date32", "[0, 1, null]"}},
                2);

  const std::vector<std::string> rows = rows_of(path);

  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(
      rows[0],
      R"({"te\"xt":"a \"b\" \\ \u000a\u0009","large":"x","bytes":"p","i":-9223372036854775808,)"
      R"("u":255,"d":0.1,"f":0.1,"b":true,"list":[[1,2],[]],"pairs":[{"k":"a","n":1},null],)"
      R"("map":{"a":1,"b":null},"cat":"u","day":"1970-01-01"})");
  EXPECT_EQ(rows[1],
            R"({"te\"xt":"世界 \u0001","large":null,"bytes":"q","i":null,"u":0,"d":1e+300,"f":NaN,)"
            R"("b":false,"list":[],"pairs":[],"map":{},"cat":"v","day":"1970-01-02"})");
  EXPECT_EQ(rows[2],
            R"({"te\"xt":"","large":"y","bytes":null,"i":7,"u":null,"d":-2.5,"f":-Infinity,)"
            R"("b":null,"list":null,"pairs":[{"k":null,"n":2}],"map":null,"cat":"u","day":null})");
}

TEST_F(Parquet, SetsEqualThoseOfJsonLinesForAllRowGroupsAndCodecs) {
  std::string lines;
  Json talks = Json::array();
  for (int i = 0; i < 1100; ++i) {
    Json talk = Json::array();
    const int turns = 1 + i % 3;
    for (int k = 0; k < turns; ++k) {
      const std::string text = formatted("text \"{}\" {}", i, std::string(std::size_t(k), 'z'));
      talk.push_back({{"role", "user"}, {"content", text}, {"weight", nullptr}});
      const Json weight = k == 1 ? Json(0) : Json(nullptr);
      talk.push_back({{"role", "assistant"}, {"content", "yes " + text}, {"weight", weight}});
    }
    if (i % 50 == 7) talk = nullptr;
    lines += Json({{"messages", talk}}).dump() + "\n";
    talks.push_back(talk);
  }
  write_text(path_ / "in.jsonl", lines);
  const Json wanted = content_of(packed("in.jsonl", "wanted", "sft"));
  ASSERT_EQ(wanted.size(), 1078U);

  const std::vector<std::pair<std::int64_t, std::string>> cases = {
      {1, "snappy"}, {1000, "zstd"}, {2000, "gzip"}, {2000, "uncompressed"}, {100, "snappy"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = formatted("{}.parquet", i);
    write_parquet(path_ / name, {{"messages", "messages", talks.dump()}}, cases[i].first,
                  cases[i].second);
    const std::filesystem::path set = packed(name, formatted("set{}", i), "sft");
    EXPECT_EQ(content_of(set), wanted) << i;
    const data::Manifest manifest = data::TokenSet::open(set).manifest();
    EXPECT_EQ(manifest.counts.bad_lines, 22U);
    EXPECT_EQ(manifest.sources.front().position, "row");
    EXPECT_EQ(manifest.sources.front().size, 1100U);
    EXPECT_EQ(manifest.bad.front().substr(0, 13), name + ":7: ");
  }
}

TEST_F(Parquet, RowsAreSharedByRowGroupAndTheBytesDoNotDependOnRanks) {
  std::filesystem::create_directory(path_ / "in");
  for (int file = 0; file < 3; ++file) {
    Json texts = Json::array();
    for (int i = 0; i < 400; ++i)
      texts.push_back(formatted("file {}, row {}, some words", file, i));
    // The third file is one row group, so its shards are cut inside and belong to one rank.
    write_parquet(path_ / "in" / formatted("{}.parquet", file), {{"text", "utf8", texts.dump()}},
                  file == 2 ? 400 : 40 + 13 * file);
  }
  write_text(path_ / "in" / "last.jsonl", "{\"text\": \"a line\"}\n");

  const auto wanted = files_below(packed("in", "one", "pretrain"));
  EXPECT_GT(wanted.size(), 9U);
  for (const int ranks : {2, 3}) {
    const std::string output = formatted("ranks{}", ranks);
    comm::run_ranks(ranks,
                    [&](comm::Communicator& world) { packed("in", output, "pretrain", &world); });
    EXPECT_EQ(files_below(path_ / output), wanted) << ranks;
  }

  const std::vector<InputFile> files = inspect_records({(path_ / "in").string()});
  const auto partitions = plan_partitions(files, 4000);
  std::size_t inside = 0;
  for (const Partition& partition : partitions) {
    for (const InputRange& range : partition) {
      const bool begins_group =
          files[range.file].format->start_cost(files[range.file], range.begin) == 0;
      EXPECT_TRUE(begins_group || range.file == 2 || range.file == 3)
          << range.file << " " << range.begin;
      if (!begins_group && range.file == 2) ++inside;
    }
  }
  EXPECT_GT(inside, 1U);
  EXPECT_EQ(group_partitions(files, partitions, 4000).size(), partitions.size() - inside);
}

TEST_F(Parquet, AnyRangesGiveEveryRowOnce) {
  Json texts = Json::array();
  for (int i = 0; i < 333; ++i) texts.push_back(std::string(std::size_t(i % 37), 'x'));
  const std::string path = (path_ / "in.parquet").string();
  write_parquet(path, {{"text", "utf8", texts.dump()}}, 50);
  for (const std::uint64_t bytes : {1, 90, 700, 100'000}) {
    const std::vector<std::string> rows = rows_of(path, bytes);
    ASSERT_EQ(rows.size(), 333U) << bytes;
    for (std::size_t i = 0; i < rows.size(); ++i)
      ASSERT_EQ(rows[i], Json({{"text", texts[i]}}).dump()) << i;
  }
  const std::vector<InputFile> files = inspect_records({path});
  const auto source = files[0].format->open(files[0]);
  EXPECT_EQ(source->read({0, 120, 130}).records[3].text, rows_of(path)[123]);
  EXPECT_EQ(source->read({0, 20, 30}).records[3].text, rows_of(path)[23]);
}

TEST_F(Parquet, DamageNamesTheFileAndTheRow) {
  Json texts = Json::array();
  for (int i = 0; i < 300; ++i) texts.push_back(formatted("row number {} {}", i, i * i * 7919));
  const std::filesystem::path path = path_ / "in.parquet";
  write_parquet(path, {{"text", "utf8", texts.dump()}}, 100);
  const std::string good = read_file(path);
  const auto damaged = [&](const std::string& bytes) {
    write_text(path, bytes);
    std::filesystem::remove_all(path_ / "set");
    return error_of([&] { packed("in.parquet", "set", "pretrain"); });
  };

  std::string bytes = good;
  bytes[good.size() / 2] ^= 1;  // a byte of the second row group
  const std::string middle = damaged(bytes);
  EXPECT_NE(middle.find("in.parquet, row 100: the Parquet file is damaged"), std::string::npos)
      << middle;
  EXPECT_NE(middle.find("CRC"), std::string::npos) << middle;

  for (const std::size_t size :
       {std::size_t{4}, std::size_t{11}, good.size() / 2, good.size() - 1}) {
    const std::string cut = damaged(good.substr(0, size));
    EXPECT_NE(cut.find("in.parquet: the Parquet file is damaged"), std::string::npos) << cut;
    EXPECT_EQ(cut.find(".. Write"), std::string::npos) << cut;
  }
  for (std::size_t i = 4; i < good.size(); i += 41) {  // no damage may end the process
    bytes = good;
    bytes[i] = static_cast<char>(bytes[i] + 77);
    write_text(path, bytes);
    error_of([&] { rows_of(path.string()); });
  }
}

TEST_F(Parquet, InvalidRowsAreNamedAsRows) {
  write_parquet(path_ / "in.parquet", {{"text", "utf8", R"(["a text", null, "another"])"}}, 2);

  const std::filesystem::path set = packed("in.parquet", "set", "pretrain");

  const data::TokenSet tokens = data::TokenSet::open(set);
  EXPECT_EQ(tokens.manifest().bad,
            (std::vector<std::string>{"in.parquet:1: field 'text' is null"}));
  EXPECT_EQ(first_invalid(tokens.manifest()),
            "; the first (FILE:ROW): in.parquet:1: field 'text' is null");
  const DocumentLocation last = find_line(tokens, 2);
  EXPECT_EQ(document_text(tokens, last, 100).substr(0, 23), "from in.parquet, row 2;");
  EXPECT_EQ(Json::parse(document_json(tokens, last))["position"], "row");
}

TEST_F(Parquet, FilesWithoutRowsAreEmptyInputs) {
  write_parquet(path_ / "a.parquet", {{"text", "utf8", "[]"}}, 10);
  write_parquet(path_ / "b.parquet", {{"text", "utf8", R"(["words"])"}}, 10);
  const std::vector<InputFile> files = inspect_records({path_.string()});
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].size, 0U);
  EXPECT_EQ(content_of(packed("*.parquet", "set", "pretrain")).size(), 1U);
}

#endif

}  // namespace
}  // namespace trireme::data_prep
