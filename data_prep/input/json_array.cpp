#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/input/byte_source.hpp"
#include "data_prep/input/compression.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kArrayTailBytes = 64 << 10;
constexpr std::uint64_t kScanBytes = 1 << 20;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// Finds the bounds of the elements of a JSON array in a stream of bytes, in constant memory. Checks
/// only the text between the elements; the elements themselves may be invalid JSON.
class ArrayScanner {
 public:
  /// `begin` is 0 or the position of the first byte of an element.
  ArrayScanner(const InputFile& file, std::uint64_t begin)
      : file_(&file), offset_(begin), state_(begin == 0 ? State::start : State::element) {}

  /// Reads the next bytes of the stream, at most up to the end of an element. Returns the number of
  /// bytes read. Throws Error(data) if the text cannot be an array of records.
  std::size_t read(std::string_view bytes) {
    ended_ = false;
    std::size_t at = 0;
    while (at < bytes.size() && !ended_) {
      if (state_ != State::inside) at += read_between(bytes.substr(at));
      if (state_ == State::inside) at += read_element(bytes.substr(at));
    }
    return at;
  }

  /// Returns the position of the next byte.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }

  /// Returns true if an element has begun and not ended.
  [[nodiscard]] bool is_inside() const { return state_ == State::inside; }

  /// Returns true if the last read() reached the end of an element.
  [[nodiscard]] bool has_ended() const { return ended_; }

  /// Returns the position of the first byte of the last element that has begun.
  [[nodiscard]] std::uint64_t begin() const { return begin_; }

  /// Throws Error(data) unless the array is complete.
  void finish() const {
    if (state_ == State::after) return;
    if (is_inside()) {
      fail(ErrorKind::data,
           "{}: the JSON array ends inside this record: the file is truncated, or a quote or "
           "bracket of the record is missing",
           line_location(*file_, begin_));
    }
    fail(ErrorKind::data, "{}: the JSON array ends without ']': the file is truncated",
         record_location(*file_, offset_));
  }

 private:
  enum class State {
    start,      // before '['
    first,      // after '[': an element or ']'
    element,    // after ',': an element
    inside,     // inside an element
    separator,  // after an element: ',' or ']'
    after,      // after ']'
  };

  [[noreturn]] void refuse(const char* what) const {
    fail(ErrorKind::data, "{}: {}", line_location(*file_, offset_), what);
  }

  /// Reads bytes up to the first byte of an element; returns their number.
  std::size_t read_between(std::string_view bytes) {
    std::size_t at = 0;
    for (; at < bytes.size() && state_ != State::inside; ++at, ++offset_) {
      const char c = bytes[at];
      const bool is_mark = state_ == State::start && offset_ < 3 && c != '[';  // byte-order mark
      if (!is_space(c) && !is_mark) read_structure(c);
      if (state_ == State::inside) break;
    }
    return at;
  }

  /// Reads a character between elements, or begins an element with it.
  void read_structure(char c) {
    const bool is_end = c == ',' || c == ']';
    switch (state_) {
      case State::start:
        if (c != '[') refuse("a JSON array must begin with '['");
        state_ = State::first;
        return;
      case State::after:
        refuse(
            "text follows the end of the JSON array. A file must be one JSON array of objects, or "
            "one JSON object on each line");
      case State::separator:
        if (!is_end)
          refuse("',' or ']' must follow a record of a JSON array. Is a comma or a quote missing?");
        state_ = c == ',' ? State::element : State::after;
        return;
      default:
        break;
    }
    if (state_ == State::first && c == ']') {
      state_ = State::after;
      return;
    }
    if (is_end) refuse("a record must follow a comma in a JSON array. Remove the comma");
    begin_ = offset_;
    state_ = State::inside;
    depth_ = 0;
    in_string_ = is_escaped_ = false;
    is_scalar_ = c != '{' && c != '[' && c != '"';
  }

  /// Reads bytes of an element; returns their number.
  std::size_t read_element(std::string_view bytes) {
    std::size_t at = 0;
    while (at < bytes.size() && !ended_) {
      const char c = bytes[at];
      if (in_string_) {
        at += read_string(bytes.substr(at));
      } else if (is_scalar_ && (c == ',' || c == ']' || is_space(c))) {
        end_element();
      } else {
        ++at;
        if (c == '"') in_string_ = true;
        if (c == '{' || c == '[') ++depth_;
        if ((c == '}' || c == ']') && --depth_ <= 0) end_element();
      }
    }
    offset_ += at;
    if (offset_ - begin_ > kMaxRecordBytes) {
      fail(ErrorKind::data,
           "{}: this record of a JSON array is longer than {} bytes. Is a quote or a bracket "
           "missing?",
           line_location(*file_, begin_), kMaxRecordBytes);
    }
    return at;
  }

  /// Reads bytes of a string up to its closing quote; returns their number.
  std::size_t read_string(std::string_view bytes) {
    std::size_t at = 0;
    while (at < bytes.size()) {
      const char c = bytes[at++];
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (c == '\\') {
        is_escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        if (depth_ == 0) end_element();
        break;
      }
    }
    return at;
  }

  void end_element() {
    ended_ = true;
    state_ = State::separator;
  }

  const InputFile* file_;
  std::uint64_t offset_;
  State state_;
  std::uint64_t begin_ = 0;
  std::int64_t depth_ = 0;  // open brackets of the element
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool is_scalar_ = false;
  bool ended_ = false;
};

/// Reads the elements of a JSON array. An element belongs to the range that has its first byte.
class ArraySource final : public RecordSource {
 public:
  explicit ArraySource(const InputFile& file) : file_(file), bytes_(file), scanner_(file, 0) {}

  RecordBatch read(const InputRange& range) override {
    if (range.begin != next_) start_at(range.begin);
    RecordBatch batch;
    std::vector<char>& buffer = batch.buffer;  // bytes from range.begin on, then zeros
    const std::size_t stop = range.end - range.begin;
    std::size_t size = 0;
    load(range.begin, stop, size, buffer);
    batch.hash = xxh3_64(std::string_view(buffer.data(), stop));
    std::size_t at = scanner_.offset() - range.begin;
    while (true) {
      const bool is_open = scanner_.is_inside() && scanner_.begin() >= range.begin;
      if (at >= stop && !is_open) break;
      if (at == size)
        load(range.begin, std::max<std::uint64_t>(kArrayTailBytes, size), size, buffer);
      const std::size_t end = is_open ? size : stop;
      at += scanner_.read(std::string_view(buffer.data() + at, end - at));
      if (scanner_.has_ended() && scanner_.begin() >= range.begin)
        batch.records.push_back(
            {{nullptr, scanner_.offset() - scanner_.begin()}, scanner_.begin()});
    }
    for (Record& record : batch.records)  // the buffer does not move any more
      record.text = {buffer.data() + (record.position - range.begin), record.text.size()};
    next_ = range.end;
    bytes_.forget_before(range.end);
    return batch;
  }

  [[nodiscard]] std::uint64_t num_starts() const override { return num_starts_; }

 private:
  /// Appends up to `more` bytes of the input to the buffer, which has `size` bytes from `begin` on.
  void load(std::uint64_t begin, std::uint64_t more, std::size_t& size, std::vector<char>& buffer) {
    more = std::min(more, file_.size - (begin + size));
    if (more == 0 && size != 0)
      fail(ErrorKind::data, "{} changed while it was read: the JSON array is not complete",
           file_.path.string());
    buffer.resize(size + more + kRecordPadding);
    bytes_.read(begin + size, std::as_writable_bytes(std::span(buffer).subspan(size, more)));
    size += more;
  }

  /// Sets the scanner to the first byte at or after `begin` that is not in a part that a range
  /// before `begin` has read.
  void start_at(std::uint64_t begin) {
    scanner_ = ArrayScanner(file_, nearest_point(file_.points, begin).offset);
    ++num_starts_;
    std::vector<char> part;
    while (scanner_.offset() < begin) {
      const std::uint64_t from = scanner_.offset();
      part.resize(std::min(kScanBytes, begin - from));
      bytes_.read(from, std::as_writable_bytes(std::span(part)));
      for (std::size_t at = 0; at < part.size();)
        at += scanner_.read(std::string_view(part.data() + at, part.size() - at));
      bytes_.forget_before(scanner_.offset());
    }
  }

  const InputFile& file_;
  ByteSource bytes_;
  ArrayScanner scanner_;
  std::uint64_t next_ = 0;  // end of the last range
  std::uint64_t num_starts_ = 0;
};

/// Checks the bounds of all records. A plain file gets access points at first bytes of records. A
/// compressed file gets none: it is read from its beginning.
void measure_array(InputFile& file) {
  file.points.clear();
  ByteSource bytes(file);
  ArrayScanner scanner(file, 0);
  std::vector<AccessPoint> points;
  std::string part;
  while (scanner.offset() < file.size) {
    part.resize(std::min(kScanBytes, file.size - scanner.offset()));
    bytes.forget_before(scanner.offset());
    bytes.read(scanner.offset(), std::as_writable_bytes(std::span(part)));
    for (std::size_t at = 0; at < part.size();) {
      at += scanner.read(std::string_view(part).substr(at));
      if (!scanner.has_ended() || file.format->compression != Compression::none) continue;
      const std::uint64_t last = points.empty() ? 0 : points.back().offset;
      if (scanner.begin() >= last + Decompressor::kPointSpacing)
        points.push_back({scanner.begin(), scanner.begin()});
    }
  }
  scanner.finish();
  file.points = std::move(points);
}

std::uint64_t array_start_cost(const InputFile& file, std::uint64_t begin) {
  return begin - nearest_point(file.points, begin).offset;
}

}  // namespace

const InputFormat& json_array(Compression compression) {
  static const auto rows = [] {
    std::array<InputFormat, 3> all{json_lines(Compression::none), json_lines(Compression::gzip),
                                   json_lines(Compression::zstd)};
    for (InputFormat& row : all) {
      row.recognises = nullptr;
      row.measure = measure_array;
      row.by_content = nullptr;
      row.start_cost = array_start_cost;
      row.in_order = true;
      row.open = [](const InputFile& file) -> std::unique_ptr<RecordSource> {
        return std::make_unique<ArraySource>(file);
      };
    }
    return all;
  }();
  return rows[static_cast<std::size_t>(compression)];
}

}  // namespace trireme::data_prep
