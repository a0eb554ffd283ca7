#include "data_prep/input/byte_source.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trireme {
namespace {

constexpr std::size_t kSkipBytes = 256 << 10;

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

}  // namespace trireme
