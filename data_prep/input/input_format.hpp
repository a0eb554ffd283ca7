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

/// The formats of inputs, one row each: `pack`, `tokenizer train` and `bench` ask the row how an
/// input is recognised, planned and read. They know records and positions only.
namespace trireme {

struct InputFormat;

/// One input file. A position in it is what its format counts: bytes of the decompressed stream for
/// JSON lines.
struct InputFile {
  std::filesystem::path path;
  std::string name;         // relative to the inputs' common folder; goes into shards
  std::uint64_t size = 0;   // end of the positions
  std::string fingerprint;  // XXH3-128 of both ends of the file; of most formats also name and size
  const InputFormat* format = nullptr;
  std::uint64_t packed_size = 0;    // bytes of the file
  std::vector<AccessPoint> points;  // where reading can begin, ascending; empty: anywhere
};

/// The records of input `file` whose positions are in [begin, end).
struct InputRange {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Readable bytes that follow every record in memory (what simdjson may look at).
inline constexpr std::size_t kRecordPadding = 64;

/// A record longer than this is not read whole: it is handed on as one with `too_long` set.
inline constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 30;

struct Record {
  std::string_view text;       // a JSON object; kRecordPadding more bytes are readable after it
  std::uint64_t position = 0;  // in the input
  bool too_long = false;       // then text is its beginning
};

/// The records of one range, in order.
struct RecordBatch {
  std::vector<char> buffer;  // holds the texts
  std::vector<Record> records;
  std::uint64_t hash = 0;  // XXH3-64 of the range's bytes
};

/// An open input. One thread at a time.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  RecordSource() = default;
  RecordSource(const RecordSource&) = delete;
  RecordSource& operator=(const RecordSource&) = delete;
  RecordSource(RecordSource&&) = delete;
  RecordSource& operator=(RecordSource&&) = delete;

  /// Reads one range. Pieces that are read apart give each record of the input exactly once. Throws
  /// Error(data) if the input is damaged or has changed.
  virtual RecordBatch read(const InputRange& range) = 0;

  /// Returns how often reading began at an access point.
  [[nodiscard]] virtual std::uint64_t num_starts() const { return 0; }
};

/// One row of the table of input formats.
struct InputFormat {
  std::string_view name;
  std::string_view suffix;    // of the files that a folder gives
  std::string_view position;  // the word before a position in messages: "byte"
  Compression compression = Compression::none;

  /// Returns true if a file with these first bytes (512 of them, or all) has this format. The row
  /// without this function takes what no other row recognises.
  bool (*recognises)(std::string_view head) = nullptr;
  /// Reads what planning needs, so it may read the whole file: sets size and points. Null: the size
  /// of the file is all. Throws Error(data) if the file is damaged.
  void (*measure)(InputFile& file) = nullptr;
  /// Refuses, by Error(data), content that is known to hold no records of this format.
  void (*check)(const InputFile& file) = nullptr;

  /// Returns the end of the range from `begin` on that has about `bytes` bytes; after `begin`.
  std::uint64_t (*range_end)(const InputFile& file, std::uint64_t begin, std::uint64_t bytes);
  /// Returns the bytes of a range, by which work is shared out and shown.
  std::uint64_t (*range_bytes)(const InputFile& file, const InputRange& range);
  /// Returns the bytes that are read in vain if reading begins at `begin`.
  std::uint64_t (*start_cost)(const InputFile& file, std::uint64_t begin);

  bool in_order = false;  // ranges of a file are read one after another, by one source
  std::unique_ptr<RecordSource> (*open)(const InputFile& file);
};

/// Returns all rows.
std::span<const InputFormat> input_formats();

/// Returns the row of JSON lines, plain or compressed. A record is a line, its position the offset
/// of its first byte in the decompressed stream. Only "\n" ends a line.
InputFormat json_lines(Compression compression);

/// Returns the format of the file with the first bytes `head`. The name counts only where they
/// contradict it: a file named .gz or .zst that begins like neither, nor like a line of JSON, is
/// Error(data). An empty file has JSON lines. Throws Error(data) for known formats that are not read
/// (xz, bzip2, lz4, zip, Parquet).
const InputFormat& detect_format(const std::filesystem::path& path, std::string_view head);

/// Returns "FILE, byte 14": where a record begins, for messages. (Lists of bad lines say FILE:14.)
std::string byte_place(std::string_view file, std::uint64_t position);
std::string record_place(const InputFile& file, std::uint64_t position);

}  // namespace trireme
