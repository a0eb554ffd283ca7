#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/file.hpp"
#include "data_prep/inputs.hpp"

namespace trireme {

/// A line longer than this is not read whole: it is handed on as one with `too_long` set.
inline constexpr std::uint64_t kMaxLineBytes = std::uint64_t{1} << 30;

/// Readable bytes that follow every line in memory (what simdjson may look at).
inline constexpr std::size_t kLinePadding = 64;

struct Line {
  std::string_view text;     // without its "\n"; kLinePadding more bytes are readable after it
  std::uint64_t offset = 0;  // of its first byte in the file
  bool too_long = false;     // then text is its beginning
};

/// The lines of one block of a file: those whose first byte lies in [begin, end), the last one read
/// to its end. Blocks of a file read apart therefore give each line exactly once. Only "\n" ends a
/// line.
class LineBlock {
 public:
  /// Reads it. `fd` is the file, of `file_size` bytes. Throws as read_all.
  LineBlock(int fd, const InputFile& file, const ByteRange& range);

  /// False at the end.
  bool next(Line& line);

  /// XXH3-64 of the bytes [begin, end).
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

 private:
  bool extend(int fd, const InputFile& file);

  std::vector<char> buffer_;  // file bytes from origin_, then kLinePadding zeros
  std::uint64_t origin_ = 0;  // file offset of buffer_[0]
  std::size_t size_ = 0;      // file bytes in buffer_
  std::size_t at_ = 0;        // first byte of the next line
  std::size_t stop_ = 0;      // a line must begin before this
  std::uint64_t hash_ = 0;
};

}  // namespace trireme
