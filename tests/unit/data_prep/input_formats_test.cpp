/// A format of numbered rows, like in a columnar file: positions are not bytes.

#include <gtest/gtest.h>

#include <set>

#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/pack/pack_partition.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::TestDirectory;

constexpr std::uint64_t kGroup = 10;       // rows that can only be read together
constexpr std::uint64_t kRowBytes = 1000;  // the format reports this size

/// Row 12 of 25 is {"text": "row 12"}.
class NumberedRows final : public RecordSource {
 public:
  RecordBatch read(const InputRange& range) override {
    EXPECT_EQ(range.begin % kGroup, 0U);
    RecordBatch batch;
    for (std::uint64_t row = range.begin; row < range.end; ++row) {
      const std::string text = formatted("{{\"text\": \"row {}\"}}", row);
      batch.records.push_back({{nullptr, text.size()}, row});
      batch.buffer.insert(batch.buffer.end(), text.begin(), text.end());
    }
    batch.buffer.resize(batch.buffer.size() + kRecordPadding);
    const char* at = batch.buffer.data();
    for (Record& record : batch.records) {
      record.text = {at, record.text.size()};
      at += record.text.size();
    }
    batch.hash = range.begin;
    return batch;
  }
};

constexpr InputFormat kRows{
    .name = "rows",
    .suffix = ".rows",
    .position = "row",
    .range_end =
        [](const InputFile& file, std::uint64_t begin, std::uint64_t bytes) {
          const std::uint64_t groups = std::max<std::uint64_t>(1, bytes / (kGroup * kRowBytes));
          return std::min(file.size, begin + groups * kGroup);
        },
    .range_bytes = [](const InputFile&,
                      const InputRange& range) { return (range.end - range.begin) * kRowBytes; },
    .start_cost = [](const InputFile&, std::uint64_t) { return std::uint64_t{0}; },
    .open = [](const InputFile&) -> std::unique_ptr<RecordSource> {
      return std::make_unique<NumberedRows>();
    }};

std::vector<InputFile> two_files() {
  InputFile file;
  file.path = file.name = "a.rows";
  file.size = 25;
  file.format = &kRows;
  return {file, file};
}

TEST(InputFormats, ArePlannedInUnitsOfTheirOwn) {
  const std::vector<InputFile> files = two_files();

  const auto partitions = plan_partitions(files, 30'000);

  ASSERT_EQ(partitions.size(), 2U);
  EXPECT_EQ(bytes_of(files, partitions[0]), 35'000U);  // 25 rows, and the next group whole
  EXPECT_EQ(partitions[0].back().end, 10U);
  EXPECT_EQ(partitions[1].front().begin, 10U);
  EXPECT_EQ(split_chunks(files, partitions[0], 1).size(), 4U);
  EXPECT_EQ(group_partitions(files, partitions, 30'000).size(), 2U);
  EXPECT_EQ(record_location(files[0], 12), "a.rows, row 12");
}

TEST(InputFormats, DocumentsKeepThePositionOfTheirRecord) {
  const TestDirectory folder("input_formats");
  const std::string corpus = (folder.path() / "corpus.jsonl").string();
  write_synth(corpus, 50, 3, false);
  const text::Tokenizer tokenizer = load_tokenizer(testing::tokenizer_of(folder.path(), corpus));
  const DocumentRules rules = read_rules(PackConfig().documents, 64);
  const std::vector<InputFile> files = two_files();
  WorkerPool pool(2);
  ChunkReader reader(files, pool.num_threads());
  ProgressDisplay progress("", 0, "none");

  const PartitionResult result = tokenize_partition(files, {{0, 10, 25}, {1, 0, 10}}, tokenizer,
                                                    rules, reader, pool, progress, [] {});

  ASSERT_EQ(result.documents.source.size(), 25U);
  EXPECT_EQ(result.documents.source_offset[2], 12U);
  EXPECT_EQ(result.documents.line[12], 12U);  // rows of the first file in this partition
  EXPECT_EQ(result.documents.source[15], 1U);
  EXPECT_EQ(result.documents.source_offset[15], 0U);
  EXPECT_EQ(result.lines, (std::vector<std::uint64_t>{15, 10}));
}

TEST(InputFormats, RowsHaveDifferentNamesAndSuffixesAndTheFirstRecognisesNothing) {
  std::set<std::string_view> names;
  std::set<std::string_view> suffixes;
  for (const InputFormat& format : input_formats()) {
    names.insert(format.name);
    suffixes.insert(format.suffix);
    EXPECT_EQ(format.recognises == nullptr, &format == &input_formats().front()) << format.name;
  }
  EXPECT_EQ(names.size(), input_formats().size());
  EXPECT_EQ(suffixes.size(), input_formats().size());
}

}  // namespace
}  // namespace trireme::data_prep
