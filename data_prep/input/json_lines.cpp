#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/input/compression.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kTailBytes = 64 << 10;
constexpr std::uint64_t kLookBytes = 4096;
constexpr std::size_t kMeasureBytes = 1 << 20;
constexpr std::size_t kSkipBytes = 256 << 10;

/// The decompressed bytes of one input. Not thread-safe.
///
/// Compressed inputs are meant to be read forward: bytes after the position of forget_before() stay
/// in memory and may be read again; reading earlier bytes restarts at the nearest access point.
class ByteSource {
 public:
  explicit ByteSource(const InputFile& file) : file_(file), fd_(open_read(file.path)) {}

  /// Reads exactly bytes.size() bytes at `offset`. Throws Error(data) if the input ends earlier.
  void read(std::uint64_t offset, std::span<std::byte> bytes) {
    if (file_.format->compression == Compression::none)
      return read_all(fd_.get(), bytes, offset, file_.path);
    // For a distant offset, an access point may be nearer than the position of the decoder.
    if (!decoder_ || offset < kept_begin_ ||
        nearest_point(file_.points, offset).offset > decoder_->offset()) {
      start_near(offset);
    }
    skip_to(offset);
    load_until(offset + bytes.size());
    std::copy_n(kept_.begin() + static_cast<std::ptrdiff_t>(offset - kept_begin_), bytes.size(),
                bytes.begin());
  }

  /// Drops bytes before `offset`: the caller will not read them again.
  void forget_before(std::uint64_t offset) {
    const std::uint64_t count =
        std::min<std::uint64_t>(kept_.size(), offset - std::min(offset, kept_begin_));
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
    kept_begin_ += count;
  }

  /// Returns how often decoding has begun at an access point; each time costs decompression.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  void start_near(std::uint64_t offset) {
    const AccessPoint point = nearest_point(file_.points, offset);
    decoder_.emplace(fd_.get(), file_.path, file_.packed_size, file_.format->compression, point);
    ++num_starts_;
    kept_.clear();
    kept_begin_ = point.offset;
  }

  void skip_to(std::uint64_t offset) {
    if (decoder_->offset() >= offset) return;
    kept_.resize(kSkipBytes);
    while (decoder_->offset() < offset) {
      const std::uint64_t wanted = std::min<std::uint64_t>(kSkipBytes, offset - decoder_->offset());
      if (decoder_->read(std::span(kept_).first(wanted)) < wanted) fail_short();
    }
    kept_.clear();
    kept_begin_ = offset;
  }

  void load_until(std::uint64_t end) {
    if (end <= decoder_->offset()) return;
    const std::size_t before = kept_.size();
    const std::size_t wanted = end - decoder_->offset();
    kept_.resize(before + wanted);
    if (decoder_->read(std::span(kept_).subspan(before)) < wanted) fail_short();
  }

  [[noreturn]] void fail_short() const {
    fail(ErrorKind::data,
         "{} changed while it was read: it ends after {} decompressed bytes, expected {}",
         file_.path.string(), decoder_->offset(), file_.size);
  }

  const InputFile& file_;
  Fd fd_;
  std::optional<Decompressor> decoder_;  // set for a compressed input
  std::vector<std::byte> kept_;
  std::uint64_t kept_begin_ = 0;  // offset of kept_[0]; kept_ ends at the position of decoder_
  std::uint64_t num_starts_ = 0;
};

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

/// Reads the lines whose first byte lies in [begin, end). The last line may end later.
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

/// Returns the first character of the stream after a byte-order mark and white space.
std::optional<char> first_character(const InputFile& file) {
  ByteSource source(file);
  std::string part;
  for (std::uint64_t offset = 0; offset < file.size; offset += part.size()) {
    part.resize(std::min(kLookBytes, file.size - offset));
    source.read(offset, std::as_writable_bytes(std::span(part)));
    std::string_view text = part;
    if (offset == 0 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    const std::size_t at = text.find_first_not_of(" \t\r\n");
    if (at != std::string_view::npos) return text[at];
  }
  return std::nullopt;
}

/// Returns the shell command that writes the content of the file to standard output.
std::string reader_of(const InputFile& file) {
  if (file.format->compression == Compression::gzip) return "gzip -dc";
  return file.format->compression == Compression::zstd ? "zstd -dc" : "cat";
}

/// Decompresses and checks the whole file. Sets the size of the stream and the access points.
void measure_stream(InputFile& file) {
  const Fd fd = open_read(file.path);
  Decompressor decoder(fd.get(), file.path, file.packed_size, file.format->compression, {});
  std::vector<std::byte> scratch(kMeasureBytes);
  while (decoder.read(scratch) == scratch.size()) {
  }
  file.size = decoder.offset();
  file.points = decoder.points();
}

/// Refuses a JSON array and lines that are arrays.
void refuse_json_array(const InputFile& file) {
  if (first_character(file) != '[') return;
  fail(
      ErrorKind::data,
      "--input {} begins with '[': it is a JSON array, or its lines are. Each line must be one JSON object (JSON Lines). Convert an array of records with: {} {} | jq -c '.[]' > records.jsonl",
      file.path.string(), reader_of(file), file.path.string());
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
          .check = refuse_json_array,
          .range_end = range_end,
          .range_bytes = range_bytes,
          .start_cost = start_cost,
          .in_order = !is_plain,
          .open = [](const InputFile& file) -> std::unique_ptr<RecordSource> {
            return std::make_unique<LineSource>(file);
          }};
}

}  // namespace trireme::data_prep
