#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data_prep/input/compression.hpp"

/// The table of input formats, one row each. `pack`, `tokenizer train` and `bench` use a row to
/// recognize, plan and read an input. They know only records and positions.
namespace trireme::data_prep {

struct InputFormat;

/// One input file. The format defines the unit of positions: bytes of the decompressed stream for
/// JSON lines, rows for Parquet.
struct InputFile {
  std::filesystem::path path;   // without links
  std::filesystem::path given;  // absolute, with links: files beside the input have this directory
  std::string name;             // relative to the common directory of the inputs; stored in shards
  std::uint64_t size = 0;       // end of the positions
  std::string fingerprint;      // XXH3-128 of both ends of the file, usually with name and size
  const InputFormat* format = nullptr;
  std::uint64_t packed_size = 0;    // bytes of the file
  std::vector<AccessPoint> points;  // positions where reading can begin, ascending; empty: all
};

/// The records of input `file` at the positions [begin, end).
struct InputRange {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Number of readable bytes after every record in memory (simdjson may read them).
inline constexpr std::size_t kRecordPadding = 64;

/// A longer record is not read whole; it is passed on with `too_long` set.
inline constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 30;

struct Record {
  std::string_view text;       // a JSON object; kRecordPadding more bytes are readable after it
  std::uint64_t position = 0;  // position in the input
  bool too_long = false;       // true: text is only its beginning
};

/// The records of one range, in order.
struct RecordBatch {
  std::vector<char> buffer;  // holds the texts
  std::vector<Record> records;
  std::uint64_t hash = 0;  // XXH3-64 of the bytes of the range
};

/// An open input. Not thread-safe.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  RecordSource() = default;
  RecordSource(const RecordSource&) = delete;
  RecordSource& operator=(const RecordSource&) = delete;

  /// Reads one range. Separate ranges together give each record of the input exactly once. Throws
  /// Error(data) if the input is damaged or has changed.
  virtual RecordBatch read(const InputRange& range) = 0;

  /// Returns how often reading has begun at an access point.
  [[nodiscard]] virtual std::uint64_t num_starts() const { return 0; }
};

/// One row of the table of input formats.
struct InputFormat {
  std::string_view name;
  std::string_view suffix;    // suffix of the files to use from a directory
  std::string_view position;  // the word before a position in messages: "byte" or "row"
  Compression compression = Compression::none;

  /// Returns true if a file with these first bytes (512, or the whole file) has this format. The
  /// row without this function accepts all files that no other row recognizes.
  bool (*recognises)(std::string_view head) = nullptr;
  /// Sets size and points for planning; may read the whole file. Null: the size of the file is
  /// enough. Throws Error(data) if the file is damaged.
  void (*measure)(InputFile& file) = nullptr;
  /// Returns the format of the records if the content of a measured file shows another format than
  /// its first bytes, otherwise null. The caller measures the file again.
  const InputFormat* (*by_content)(const InputFile& file) = nullptr;

  /// Returns the end of the range of about `bytes` bytes from `begin`; greater than `begin`.
  std::uint64_t (*range_end)(const InputFile& file, std::uint64_t begin, std::uint64_t bytes);
  /// Like range_end, for the range of a shard that has room for `room` of its `unit_bytes`. Returns
  /// `begin` if the range belongs to the next shard; never if room == unit_bytes. Null: range_end.
  std::uint64_t (*shard_end)(const InputFile& file, std::uint64_t begin, std::uint64_t room,
                             std::uint64_t unit_bytes) = nullptr;
  /// Returns the bytes of a range, used to split work and to show progress.
  std::uint64_t (*range_bytes)(const InputFile& file, const InputRange& range);
  /// Returns the number of extra bytes to read if reading begins at `begin`.
  std::uint64_t (*start_cost)(const InputFile& file, std::uint64_t begin);

  bool in_order = false;  // one source reads the ranges of a file in order
  std::unique_ptr<RecordSource> (*open)(const InputFile& file);
};

/// Returns all rows.
std::span<const InputFormat> input_formats();

/// Returns the row of JSON lines, plain or compressed. A record is a line; its position is the
/// offset of its first byte in the decompressed stream. Only "\n" ends a line.
InputFormat json_lines(Compression compression);

/// Returns the format of one JSON array, plain or compressed. A record is an element of the array; its
/// position is like that of a line. JSON lines find this format (InputFormat::by_content).
const InputFormat& json_array(Compression compression);

/// Returns the format of a file that begins with `head`, if it is neither JSON nor compressed JSON.
const InputFormat* binary_format(std::string_view head);

/// Returns the names of all formats, for help and messages.
const char* input_format_names();

/// Returns the help of an option that takes several inputs.
const char* input_help();

/// Returns the format of a file that begins with `head`. Throws Error(data) for a file named .gz or
/// .zst that begins neither like that format nor like a line of JSON, and for known formats that
/// are not supported (xz, bzip2, lz4, zip, Arrow IPC, CSV, one JSON object over several lines). An
/// empty file has the format JSON lines.
const InputFormat& detect_format(const std::filesystem::path& path, std::string_view head);

/// Returns "FILE, byte 14" or "FILE, row 14": the position of a record, for messages. (Lists of
/// invalid records use FILE:14.)
std::string record_location(std::string_view file, std::string_view word, std::uint64_t position);
std::string record_location(const InputFile& file, std::uint64_t position);

}  // namespace trireme::data_prep
