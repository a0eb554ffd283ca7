#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/input/byte_source.hpp"
#include "data_prep/input/compression.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kTailBytes = 64 << 10;
constexpr std::size_t kMeasureBytes = 1 << 20;

/// Appends bytes to the buffer (which has `size` bytes and begins at `origin` of the input) because
/// the last line continues. Returns false at the end of the input, or if the line is too long.
bool extend(ByteSource& source, const InputFile& file, std::uint64_t origin, std::size_t stop,
            std::size_t& size, std::vector<char>& buffer) {
  const std::uint64_t left = file.size - (origin + size);
  const std::uint64_t more = std::min(left, std::max<std::uint64_t>(kTailBytes, size - stop));
  if (more == 0 || size > kMaxRecordBytes + stop) return false;
  buffer.resize(size + more + kRecordPadding);
  source.read(origin + size, std::as_writable_bytes(std::span(buffer).subspan(size, more)));
  size += more;
  return true;
}

/// Reads the lines that begin in [begin, end). The last line may end later.
RecordBatch read_lines(ByteSource& source, const InputFile& file, const InputRange& range) {
  RecordBatch batch;
  std::vector<char>& buffer = batch.buffer;  // bytes from origin on, then kRecordPadding zeros
  // Read one byte before `begin`: a line begins at `begin` only if that byte is a newline.
  const std::uint64_t origin = range.begin == 0 ? 0 : range.begin - 1;
  const std::size_t stop = range.end - origin;  // lines must begin before this position
  std::size_t size = stop;
  buffer.resize(size + kRecordPadding);
  source.read(origin, std::as_writable_bytes(std::span(buffer).first(size)));
  const auto find_end = [&](std::size_t from) -> std::size_t {
    const void* newline = std::memchr(buffer.data() + from, '\n', size - from);
    return newline == nullptr
               ? size
               : static_cast<std::size_t>(static_cast<const char*>(newline) - buffer.data());
  };
  const std::size_t first = range.begin - origin;
  batch.hash = xxh3_64(std::string_view(buffer.data() + first, stop - first));
  std::size_t at = first == 0 ? 0 : find_end(0) + 1;
  if (at >= stop) return batch;
  while (find_end(stop - 1) == size && extend(source, file, origin, stop, size, buffer)) {
  }
  while (at < stop) {
    const std::size_t length = find_end(at) - at;
    batch.records.push_back({{buffer.data() + at, length}, origin + at, length > kMaxRecordBytes});
    at += length + 1;
  }
  return batch;
}

class LineSource final : public RecordSource {
 public:
  explicit LineSource(const InputFile& file) : file_(file), bytes_(file) {}

  RecordBatch read(const InputRange& range) override {
    RecordBatch batch = read_lines(bytes_, file_, range);
    bytes_.forget_before(range.end - 1);  // the next range begins with that byte
    return batch;
  }

  [[nodiscard]] std::uint64_t num_starts() const override { return bytes_.num_starts(); }

 private:
  const InputFile& file_;
  ByteSource bytes_;
};

/// Decompresses and checks the whole file. Sets the size of the stream and the access points.
void measure_stream(InputFile& file) {
  const Fd fd = open_read(file.path);
  Decompressor decoder(fd.get(), file.path, file.packed_size, file.format->compression, {});
  std::vector<std::byte> scratch(kMeasureBytes);
  std::size_t count = decoder.read(scratch);
  const InputFormat* const inner =
      binary_format({reinterpret_cast<const char*>(scratch.data()), count});
  if (inner != nullptr)
    fail(ErrorKind::data,
         "--input {} is a file of the format {} that was compressed as a whole. Decompress it, for "
         "example with {}",
         file.path.string(), inner->name,
         file.format->compression == Compression::gzip ? "gunzip" : "zstd -d");
  while (count == scratch.size()) count = decoder.read(scratch);
  file.size = decoder.offset();
  file.points = decoder.points();
}

/// Returns the format of JSON arrays if the file is one.
const InputFormat* array_format(const InputFile& file) {
  return first_character(file) == '[' ? &json_array(file.format->compression) : nullptr;
}

std::uint64_t range_end(const InputFile& file, std::uint64_t begin, std::uint64_t bytes) {
  return begin + std::min(bytes, file.size - begin);
}

std::uint64_t range_bytes(const InputFile& /*file*/, const InputRange& range) {
  return range.end - range.begin;
}

std::uint64_t start_cost(const InputFile& file, std::uint64_t begin) {
  if (file.format->compression == Compression::none || begin == 0) return 0;
  const std::uint64_t first = begin - 1;  // the byte before `begin` is read too
  return first - nearest_point(file.points, first).offset;
}

}  // namespace

InputFormat json_lines(Compression compression) {
  const bool is_plain = compression == Compression::none;
  return {.name = name_of(compression),
          .suffix = is_plain                           ? ".jsonl"
                    : compression == Compression::gzip ? ".jsonl.gz"
                                                       : ".jsonl.zst",
          .position = "byte",
          .compression = compression,
          .recognises = is_plain                           ? nullptr
                        : compression == Compression::gzip ? is_gzip
                                                           : is_zstd,
          .measure = is_plain ? nullptr : measure_stream,
          .by_content = array_format,
          .range_end = range_end,
          .range_bytes = range_bytes,
          .start_cost = start_cost,
          .in_order = !is_plain,
          .open = [](const InputFile& file) -> std::unique_ptr<RecordSource> {
            return std::make_unique<LineSource>(file);
          }};
}

}  // namespace trireme::data_prep
