#include "data_prep/input/line_reader.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kTailBytes = 64 << 10;

}  // namespace

std::string byte_place(std::string_view file, std::uint64_t offset) {
  return formatted("{}, byte {}", file, offset);
}

ChunkLines::ChunkLines(ByteSource& source, const InputFile& file, const ByteRange& range) {
  // One byte more in front: a line begins at `begin` only if a newline stands before it.
  origin_ = range.begin == 0 ? 0 : range.begin - 1;
  size_ = range.end - origin_;
  stop_ = size_;
  buffer_.resize(size_ + kLinePadding);
  source.read(origin_, std::as_writable_bytes(std::span(buffer_).first(size_)));
  const std::size_t first = range.begin - origin_;
  hash_ = xxh3_64(std::string_view(buffer_.data() + first, size_ - first));
  if (first != 0) {
    const void* newline = std::memchr(buffer_.data(), '\n', size_);
    at_ = newline == nullptr
              ? stop_
              : static_cast<std::size_t>(static_cast<const char*>(newline) - buffer_.data()) + 1;
  }
  if (at_ >= stop_) return;
  while (std::find(buffer_.begin() + static_cast<std::ptrdiff_t>(stop_ - 1),
                   buffer_.begin() + static_cast<std::ptrdiff_t>(size_),
                   '\n') == buffer_.begin() + static_cast<std::ptrdiff_t>(size_) &&
         extend(source, file)) {
  }
}

bool ChunkLines::extend(ByteSource& source, const InputFile& file) {
  const std::uint64_t left = file.size - (origin_ + size_);
  const std::uint64_t more = std::min(left, std::max<std::uint64_t>(kTailBytes, size_ - stop_));
  if (more == 0 || size_ > kMaxLineBytes + stop_) return false;
  buffer_.resize(size_ + more + kLinePadding);
  source.read(origin_ + size_, std::as_writable_bytes(std::span(buffer_).subspan(size_, more)));
  size_ += more;
  return true;
}

bool ChunkLines::next(Line& line) {
  if (at_ >= stop_) return false;
  const char* begin = buffer_.data() + at_;
  const void* newline = std::memchr(begin, '\n', size_ - at_);
  const std::size_t length =
      newline == nullptr ? size_ - at_
                         : static_cast<std::size_t>(static_cast<const char*>(newline) - begin);
  line = {{begin, length}, origin_ + at_, length > kMaxLineBytes};
  at_ += length + 1;
  return true;
}

}  // namespace trireme
