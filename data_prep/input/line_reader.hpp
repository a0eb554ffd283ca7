#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data_prep/input/byte_source.hpp"

namespace trireme {

/// A line longer than this is not read whole: it is handed on as one with `too_long` set.
inline constexpr std::uint64_t kMaxLineBytes = std::uint64_t{1} << 30;

/// Readable bytes that follow every line in memory (what simdjson may look at).
inline constexpr std::size_t kLinePadding = 64;

struct Line {
  std::string_view text;     // without its "\n"; kLinePadding more bytes are readable after it
  std::uint64_t offset = 0;  // of its first byte in the input
  bool too_long = false;     // then text is its beginning
};

/// "FILE, byte 14": where a line begins, for messages. (Lists of bad lines say FILE:14.)
std::string byte_place(std::string_view file, std::uint64_t offset);

/// The lines of one chunk of a file: those whose first byte lies in [begin, end),
/// the last one read to its end. Chunks of a file read apart therefore give each
/// line exactly once. Only "\n" ends a line.
class ChunkLines {
 public:
  /// Reads it from `source`, the bytes of `file`. Throws as ByteSource::read.
  ChunkLines(ByteSource& source, const InputFile& file, const ByteRange& range);

  /// False at the end.
  bool next(Line& line);

  /// XXH3-64 of the bytes [begin, end).
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  bool extend(ByteSource& source, const InputFile& file);

  std::vector<char> buffer_;  // bytes of the input from origin_, then kLinePadding zeros
  std::uint64_t origin_ = 0;  // offset of buffer_[0]
  std::size_t size_ = 0;      // bytes of the input in buffer_
  std::size_t at_ = 0;        // first byte of the next line
  std::size_t stop_ = 0;      // a line must begin before this
  std::uint64_t hash_ = 0;
};

}  // namespace trireme
