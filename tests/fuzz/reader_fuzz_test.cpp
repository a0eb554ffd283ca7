/// Damaged plain, gzip and zstd streams and damaged JSON arrays must give an error of kind data, or
/// every record exactly once.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/partitions.hpp"
#include "fuzz/mutator.hpp"
#include "unit/data_prep/compress.hpp"

namespace trireme {
namespace {

using testing::gzip;
using testing::in_pieces;
using testing::Mutator;
using testing::zstd;

/// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {}

  data_prep::InputFile fill(const std::string& content) const {
    if (::ftruncate(fd_.get(), 0) != 0) std::abort();
    write_all(fd_.get(), std::as_bytes(std::span(content)), 0, "memory");
    data_prep::InputFile file;
    file.path = formatted("/proc/self/fd/{}", fd_.get());
    file.size = file.packed_size = content.size();
    return file;
  }

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

std::string seed_text() {
  std::string text = "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\r\n";
  for (std::size_t i = 0; i < 12; ++i) {
    text.append(i * i, 'x');
    text += '\n';
  }
  text += "the last line has no end";
  return text;
}

std::vector<std::string> seeds() {
  const std::string text = seed_text();
  const std::string skippable(
      "\x50\x2a\x4d\x18\x03\x00\x00\x00"
      "abc",
      11);
  return {text,
          gzip(text),
          gzip(text, 0),
          in_pieces(text, 100, [](auto part) { return gzip(part); }).append(9, '\0'),
          zstd(text),
          in_pieces(text, 100, [](auto part) { return zstd(part); }) + skippable,
          zstd(std::string(100'000, 'a'))};
}

/// Reads the whole stream, and measures it first like inspect_inputs.
std::string decompress(const MemoryFile& memory, data_prep::InputFile& file) {
  data_prep::Decompressor decoder(memory.fd(), file.path, file.packed_size,
                                  file.format->compression, {});
  std::string stream;
  std::string part(70'000, '\0');
  while (true) {
    const std::size_t got = decoder.read(std::as_writable_bytes(std::span(part)));
    stream.append(part, 0, got);
    if (got < part.size()) break;
  }
  file.size = decoder.offset();
  file.points = decoder.points();
  return stream;
}

void expect_each_line_once(const data_prep::InputFile& file, const std::string& stream,
                           std::size_t chunk) {
  const std::vector<data_prep::InputFile> files{file};
  const auto chunks = data_prep::split_chunks(files, data_prep::whole_files(files), chunk);
  data_prep::ChunkReader reader(files, 1);
  reader.start(chunks);
  std::size_t at = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const data_prep::RecordBatch batch = reader.read(i, 0);
    for (const data_prep::Record& line : batch.records) {
      ASSERT_EQ(line.position, at);
      const std::size_t end = std::min(stream.find('\n', at), stream.size());
      ASSERT_EQ(line.text, std::string_view(stream).substr(at, end - at));
      at = end + 1;
    }
  }
  ASSERT_GE(at, stream.size());
}

TEST(Fuzz, ReadersGiveEachLineOnceOrAnError) {
  Mutator mutator(2,
                  {"\n", "\x1f\x8b", "\x28\xb5\x2f\xfd", "\x50\x2a\x4d\x18", "\xff\xff\xff\xff"});
  const std::vector<std::string> all = seeds();
  const MemoryFile memory;
  std::size_t good = 0;
  const long grown = testing::fuzz("reader", testing::fuzz_cases(1'000'000), [&](std::size_t) {
    std::string content = all[mutator.below(all.size())];
    mutator.mutate(content);
    data_prep::InputFile file = memory.fill(content);
    try {
      file.format =
          &data_prep::detect_format("seed.jsonl", std::string_view(content).substr(0, 512));
      const std::string stream = file.format->compression == data_prep::Compression::none
                                     ? content
                                     : decompress(memory, file);
      ++good;
      const std::size_t least = stream.size() / 50 + 1;  // limits the number of chunks
      ASSERT_NO_FATAL_FAILURE(
          expect_each_line_once(file, stream, least + mutator.below(stream.size() + 100)));
    } catch (const Error& error) {
      ASSERT_TRUE(error.kind() == ErrorKind::data || error.kind() == ErrorKind::usage)
          << error.what();
    }
  });
  std::printf("%zu streams without an error\n", good);
  EXPECT_LT(grown, 400);  // a few hundred bytes of zstd may expand to many MB
}

/// Reads the records of the file in ranges of about `bytes` bytes.
std::vector<std::pair<std::uint64_t, std::string>> read_records(const data_prep::InputFile& file,
                                                                std::size_t bytes) {
  const std::vector<data_prep::InputFile> files{file};
  const auto chunks = data_prep::split_chunks(files, data_prep::whole_files(files), bytes);
  data_prep::ChunkReader reader(files, 1);
  reader.start(chunks);
  std::vector<std::pair<std::uint64_t, std::string>> records;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    for (const data_prep::Record& record : reader.read(i, 0).records)
      records.emplace_back(record.position, record.text);
  }
  return records;
}

TEST(Fuzz, JsonArraysGiveTheSameRecordsInAllRangesOrAnError) {
  Mutator mutator(3, {"[", "]", "{", "}", ",", "\"", "\\\"", "\\", "\n", "null"});
  const std::vector<std::string> seeds = {
      "[{\"text\": \"one\"}, {\"a\": [1, {\"b\": \"]}\\\"\"}]},\n 17, \"x,]\", [[]], null]\n",
      "\xEF\xBB\xBF[]", "[ {\"text\": \"\\\\\"} ]"};
  const MemoryFile memory;
  std::size_t good = 0;
  testing::fuzz("arrays", testing::fuzz_cases(200'000), [&](std::size_t) {
    std::string content = seeds[mutator.below(seeds.size())];
    mutator.mutate(content);
    data_prep::InputFile file = memory.fill(content);
    file.format = &data_prep::json_array(data_prep::Compression::none);
    try {
      file.format->measure(file);
      const auto records = read_records(file, content.size() + 1);
      ++good;
      ASSERT_EQ(read_records(file, content.size() / 40 + 1 + mutator.below(20)), records);
      std::uint64_t at = 0;
      for (const auto& [position, text] : records) {
        ASSERT_GT(position, at);
        ASSERT_EQ(content.substr(position, text.size()), text);
        at = position;
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << error.what();
    }
  });
  std::printf("%zu arrays without an error\n", good);
}

}  // namespace
}  // namespace trireme
