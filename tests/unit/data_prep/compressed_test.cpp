#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "core/error.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/worker_pool.hpp"
#include "unit/data_prep/compress.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::data_prep {
namespace {

using testing::gzip;
using testing::in_pieces;
using testing::TestDirectory;
using testing::write_text;
using testing::zstd;

using Lines = std::vector<std::pair<std::uint64_t, std::string>>;

/// Returns lines of very different lengths, some empty.
std::string some_text(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < size) {
    text.append(random() % 7 == 0 ? random() % 5000 : random() % 60,
                static_cast<char>('a' + random() % 26));
    text += '\n';
  }
  return text;
}

Lines split(const std::string& text) {
  Lines lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(at, text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// Returns all lines of file 0, read by `threads` threads in lists of `chunks_a_list` chunks.
Lines read_all_lines(const std::vector<InputFile>& files, std::uint64_t chunk_bytes,
                     int threads = 1, std::size_t chunks_a_list = 1000000) {
  const auto chunks = split_chunks(files, {{0, 0, files[0].size}}, chunk_bytes);
  WorkerPool pool(threads);
  ChunkReader reader(files, threads);
  Lines lines;
  for (std::size_t first = 0; first < chunks.size(); first += chunks_a_list) {
    const std::size_t count = std::min(chunks_a_list, chunks.size() - first);
    const auto begin = chunks.begin() + static_cast<std::ptrdiff_t>(first);
    reader.start({begin, begin + static_cast<std::ptrdiff_t>(count)});
    std::vector<Lines> parts(count);
    pool.run(
        count,
        [&](std::size_t i, int worker) {
          const RecordBatch batch = reader.read(i, worker);
          for (const Record& line : batch.records) parts[i].emplace_back(line.position, line.text);
        },
        [] {});
    for (const Lines& part : parts) lines.insert(lines.end(), part.begin(), part.end());
  }
  return lines;
}

class Compressed : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) const {
    const std::string path = (folder_.path() / name).string();
    write_text(path, content);
    return path;
  }

  std::string error_of(const std::string& path, ErrorKind kind) const {
    try {
      inspect_inputs({path});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  TestDirectory folder_{"compressed"};
};

TEST_F(Compressed, InputsGiveTheLinesOfThePlainOnes) {
  const std::string skippable = std::string("\x50\x2a\x4d\x18\x03\x00\x00\x00", 8) + "abc";
  for (const std::string& text : {std::string(), std::string("a"), some_text(40'000, 1)}) {
    const std::string packed[] = {gzip(text),
                                  gzip(text, 0),
                                  in_pieces(text, 777, [](auto part) { return gzip(part); }),
                                  gzip(text) + gzip("") + std::string(1000, '\0'),
                                  zstd(text),
                                  in_pieces(text, 777, [](auto part) { return zstd(part); }),
                                  skippable + zstd(text) + skippable + zstd("")};
    for (const std::string& content : packed) {
      if (content.empty()) continue;  // there are no parts
      const auto files = inspect_inputs({file("x", content)});

      ASSERT_EQ(files[0].size, text.size());
      for (const std::uint64_t chunk : {1000U, 4096U, 100'000U}) {
        ASSERT_EQ(read_all_lines(files, chunk), split(text)) << chunk;
        ASSERT_EQ(read_all_lines(files, chunk, 3, 2), split(text)) << chunk;
      }
    }
  }
}

TEST_F(Compressed, InputsAreNamedByTheirMagicBytes) {
  const auto compression = [&](const std::string& name, const std::string& content) {
    return inspect_inputs({file(name, content)})[0].format->compression;
  };
  EXPECT_EQ(compression("a.jsonl", gzip("{}")), Compression::gzip);
  EXPECT_EQ(compression("b.jsonl.gz", zstd("{}")), Compression::zstd);
  EXPECT_EQ(compression("c.jsonl.gz", " \n{}"), Compression::none);
  EXPECT_EQ(compression("d.jsonl", "no json"), Compression::none);
  EXPECT_NE(error_of(file("e.gz", "no json"), ErrorKind::data).find("byte 0"), std::string::npos);
  // This is the compressed form of an empty file, like gzip("").
  EXPECT_EQ(inspect_inputs({file("f.zst", "")}).at(0).size, 0U);
  const std::string xz("\xFD\x37zXZ\0rest", 10);
  EXPECT_NE(error_of(file("g.jsonl", xz), ErrorKind::data).find("is xz"), std::string::npos);
}

TEST_F(Compressed, InputsCutAnywhereAreErrors) {
  const std::string text = some_text(3000, 2);
  const std::string whole[] = {gzip(text), zstd(text)};
  for (const std::string& content : whole) {
    for (std::size_t size = 4; size < content.size(); ++size) {
      const std::string message = error_of(file("cut", content.substr(0, size)), ErrorKind::data);
      ASSERT_NE(message.find("damaged"), std::string::npos) << size << ": " << message;
    }
    EXPECT_NE(error_of(file("more", content + "x"), ErrorKind::data).find("damaged"),
              std::string::npos);
  }
}

TEST_F(Compressed, DamageIsFoundOrHarmless) {
  const std::string text = some_text(3000, 3);
  const std::string whole[] = {gzip(text), zstd(text)};
  std::mt19937 random(4);
  std::size_t found = 0;
  for (int i = 0; i < 600; ++i) {
    std::string content = whole[i % 2];
    content[4 + random() % (content.size() - 4)] ^= static_cast<char>(1 + random() % 255);
    try {
      const auto files = inspect_inputs({file("damaged", content)});
      ASSERT_EQ(read_all_lines(files, 1000), split(text));  // a byte without meaning: time, flags
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << error.what();
      ++found;
    }
  }
  EXPECT_GT(found, 570U);
}

TEST_F(Compressed, ReadingBeginsAtTheNearestMemberOrFrame) {
  std::string text = some_text(12 << 20, 5);
  text.resize(12 << 20);
  const auto member = [](auto part) { return gzip(part, 1); };
  const auto files = inspect_inputs({file("many", in_pieces(text, 1 << 20, member)),
                                     file("one", gzip(text, 1)), file("plain", text)});
  ASSERT_EQ(files[0].points.size(), 3U);  // 12 members, points at least 4 MiB apart
  ASSERT_EQ(files[1].points.size(), 1U);

  const std::uint64_t unit_bytes = 9 << 19;  // 4.5 MiB
  const auto partitions = plan_partitions(files, unit_bytes);
  const auto groups = group_partitions(files, partitions, unit_bytes);

  // Partitions of `many` and of `plain` can be read independently. Those inside `one` need the
  // partition in which it begins.
  EXPECT_EQ(groups, (std::vector<std::vector<std::size_t>>{{0}, {1}, {2, 3, 4, 5}, {6}, {7}}));
}

TEST_F(Compressed, AStreamIsDecompressedOnceWhateverThePartitions) {
  const std::string text = some_text(300'000, 6);
  const auto files = inspect_inputs({file("one", zstd(text))});
  ChunkReader reader(files, 1);
  Lines lines;
  const auto read_partition = [&](const Partition& partition) {
    const auto chunks = split_chunks(files, partition, 1000);
    reader.start(chunks);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const RecordBatch batch = reader.read(i, 0);
      for (const Record& line : batch.records) lines.emplace_back(line.position, line.text);
    }
  };
  const auto partitions = plan_partitions(files, 10'000);
  for (const Partition& partition : partitions) read_partition(partition);
  EXPECT_EQ(lines, split(text));
  EXPECT_EQ(reader.num_starts(), 1U);

  lines.clear();
  read_partition(partitions[20]);  // backwards: starts anew and skips
  EXPECT_EQ(reader.num_starts(), 2U);
  ASSERT_FALSE(lines.empty());
  EXPECT_GE(lines.front().first, 200'000U);
  read_partition(partitions[25]);  // forwards: continues
  EXPECT_EQ(reader.num_starts(), 2U);
}

TEST_F(Compressed, AFailedChunkEndsThoseThatWait) {
  const std::string text = some_text(100'000, 7);
  auto files = inspect_inputs({file("one", gzip(text))});
  files[0].size += 5000;  // simulates a file that has shrunk since
  EXPECT_THROW(read_all_lines(files, 1000, 3), Error);
}

TEST_F(Compressed, DirectoriesAndPatternsExpandToTheirFiles) {
  std::filesystem::create_directories(folder_.path() / "in" / "sub");
  file("in/b.jsonl", "{}");
  file("in/a.jsonl.gz", gzip("{}"));
  file("in/sub/c.jsonl.zst", zstd("{}"));
  file("in/notes.txt", "not an input");
  const auto names = [&](const std::string& argument) {
    std::vector<std::string> found;
    for (const InputFile& input : inspect_inputs({(folder_.path() / argument).string()}))
      found.push_back(input.name);
    return found;
  };

  EXPECT_EQ(names("in"), (std::vector<std::string>{"a.jsonl.gz", "b.jsonl", "sub/c.jsonl.zst"}));
  EXPECT_EQ(names("in/*.jsonl*"), (std::vector<std::string>{"a.jsonl.gz", "b.jsonl"}));
  EXPECT_NE(error_of((folder_.path() / "in/*.csv").string(), ErrorKind::data).find("no file"),
            std::string::npos);
  std::filesystem::create_directory(folder_.path() / "empty");
  EXPECT_NE(error_of((folder_.path() / "empty").string(), ErrorKind::data).find("no .jsonl"),
            std::string::npos);
}

TEST_F(Compressed, AParquetFileInsideIsNamed) {
  const std::string content = "PAR1" + some_text(3000, 7);
  for (const auto& [packed, tool] :
       std::map<std::string, std::string>{{gzip(content), "gunzip"}, {zstd(content), "zstd -d"}}) {
    const std::string told = error_of(file("in.parquet.gz", packed), ErrorKind::data);
    EXPECT_NE(told.find("in.parquet.gz is a file of the format parquet that was compressed as "
                        "a whole. Decompress it, for example with " +
                        tool),
              std::string::npos)
        << told;
  }
}

TEST_F(Compressed, AnArrayIsFoundInsideACompressedFileToo) {
  for (const std::string& content : {gzip("[{\"text\": \"a\"}]"), zstd(" \n[1]")}) {
    const std::string path = file("array.jsonl", content);
    EXPECT_NE(inspect_records({path})[0].format, inspect_inputs({path})[0].format);
    EXPECT_EQ(inspect_records({path})[0].format->compression,
              inspect_inputs({path})[0].format->compression);
  }
  const std::string lines = file("lines.jsonl", gzip("{\"text\": \"[\"}\n"));
  EXPECT_EQ(inspect_records({lines})[0].format, inspect_inputs({lines})[0].format);
}

}  // namespace
}  // namespace trireme::data_prep
