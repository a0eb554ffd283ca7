#include "data_prep/input/byte_source.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "data_prep/input/compression.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kLookBytes = 4096;
constexpr std::size_t kSkipBytes = 256 << 10;

/// Calls `use(part)` for the bytes [0, end) in order, until it returns false.
template <class Use>
void for_each_part(const InputFile& file, std::uint64_t end, std::uint64_t part_bytes, Use use) {
  ByteSource source(file);
  std::string part;
  for (std::uint64_t offset = 0; offset < end; offset += part.size()) {
    source.forget_before(offset);
    part.resize(std::min(part_bytes, end - offset));
    source.read(offset, std::as_writable_bytes(std::span(part)));
    if (!use(std::string_view(part), offset)) return;
  }
}

}  // namespace

void ByteSource::read(std::uint64_t offset, std::span<std::byte> bytes) {
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

void ByteSource::forget_before(std::uint64_t offset) {
  const std::uint64_t count =
      std::min<std::uint64_t>(kept_.size(), offset - std::min(offset, kept_begin_));
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
  kept_begin_ += count;
}

void ByteSource::start_near(std::uint64_t offset) {
  const AccessPoint point = nearest_point(file_.points, offset);
  decoder_.emplace(fd_.get(), file_.path, file_.packed_size, file_.format->compression, point);
  ++num_starts_;
  kept_.clear();
  kept_begin_ = point.offset;
}

void ByteSource::skip_to(std::uint64_t offset) {
  if (decoder_->offset() >= offset) return;
  kept_.resize(kSkipBytes);
  while (decoder_->offset() < offset) {
    const std::uint64_t wanted = std::min<std::uint64_t>(kSkipBytes, offset - decoder_->offset());
    if (decoder_->read(std::span(kept_).first(wanted)) < wanted) fail_short();
  }
  kept_.clear();
  kept_begin_ = offset;
}

void ByteSource::load_until(std::uint64_t end) {
  if (end <= decoder_->offset()) return;
  const std::size_t before = kept_.size();
  const std::size_t wanted = end - decoder_->offset();
  kept_.resize(before + wanted);
  if (decoder_->read(std::span(kept_).subspan(before)) < wanted) fail_short();
}

void ByteSource::fail_short() const {
  fail(ErrorKind::data,
       "{} changed while it was read: it ends after {} decompressed bytes, expected {}",
       file_.path.string(), decoder_->offset(), file_.size);
}

std::optional<char> first_character(const InputFile& file) {
  std::optional<char> found;
  for_each_part(file, file.size, kLookBytes, [&](std::string_view part, std::uint64_t offset) {
    if (offset == 0 && part.starts_with("\xEF\xBB\xBF")) part.remove_prefix(3);
    const std::size_t at = part.find_first_not_of(" \t\r\n");
    if (at != std::string_view::npos) found = part[at];
    return !found;
  });
  return found;
}

std::string line_location(const InputFile& file, std::uint64_t position) {
  if (file.format->position != "byte") return record_location(file, position);
  std::uint64_t line = 1;
  for_each_part(file, position, kSkipBytes, [&](std::string_view part, std::uint64_t) {
    line += static_cast<std::uint64_t>(std::count(part.begin(), part.end(), '\n'));
    return true;
  });
  return formatted("{}, line {}, byte {}", file.path.string(), line, position);
}

}  // namespace trireme::data_prep
