#include "data_prep/input/compression.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::size_t kBufferBytes = 256 << 10;
constexpr int kMaxZstdWindowLog = 27;

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

/// Returns true for a frame that decoders skip. Seekable and parallel zstd files may begin with
/// one. Source: RFC 8878, section 3.1.2.
bool is_skippable_frame(std::string_view head) {
  return head.size() >= 4 && (head[0] & '\xf0') == '\x50' && head.substr(1, 3) == "\x2a\x4d\x18";
}

}  // namespace

std::string_view name_of(Compression compression) {
  constexpr std::array<std::string_view, 3> kNames{"none", "gzip", "zstd"};
  return kNames[static_cast<std::size_t>(compression)];
}

bool is_gzip(std::string_view head) {
  return head.starts_with(kGzipMagic);
}

bool is_zstd(std::string_view head) {
  return head.starts_with(kZstdMagic) || is_skippable_frame(head);
}

AccessPoint nearest_point(const std::vector<AccessPoint>& points, std::uint64_t offset) {
  const auto after = std::upper_bound(
      points.begin(), points.end(), offset,
      [](std::uint64_t at, const AccessPoint& point) { return at < point.offset; });
  return after == points.begin() ? AccessPoint{} : *(after - 1);
}

/// A decoder. step() decodes until `in` is consumed, `out` is full or the member or frame ends.
class Decompressor::Codec {
 public:
  struct Step {
    std::size_t consumed = 0;
    std::size_t produced = 0;
    bool part_done = false;
    std::string_view error;  // not empty: the data is damaged
  };

  virtual ~Codec() = default;
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  virtual Step step(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  /// Prepares for the next member or frame.
  virtual void restart() = 0;
};

class Decompressor::GzipCodec final : public Codec {
 public:
  GzipCodec() {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK)  // 16: require a gzip header
      fail(ErrorKind::resource, "no memory for a gzip decoder");
  }

  GzipCodec(const GzipCodec&) = delete;
  GzipCodec& operator=(const GzipCodec&) = delete;

  ~GzipCodec() override { inflateEnd(&stream_); }

  Step step(std::span<const std::byte> in, std::span<std::byte> out) override {
    const std::size_t room = std::min<std::size_t>(out.size(), std::size_t{1} << 30);
    // zlib's interface is not const-correct; inflate does not write its input.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    Step step{in.size() - stream_.avail_in, room - stream_.avail_out, code == Z_STREAM_END, {}};
    if (code == Z_MEM_ERROR) fail(ErrorKind::resource, "no memory to decompress gzip");
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      step.error = stream_.msg == nullptr ? "invalid data" : stream_.msg;
    return step;
  }

  void restart() override { inflateReset(&stream_); }

 private:
  z_stream stream_{};
};

class Decompressor::ZstdCodec final : public Codec {
 public:
  ZstdCodec() : context_(ZSTD_createDCtx()) {
    if (!context_) fail(ErrorKind::resource, "no memory for a zstd decoder");
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxZstdWindowLog);
  }

  Step step(std::span<const std::byte> in, std::span<std::byte> out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const std::size_t code = ZSTD_decompressStream(context_.get(), &output, &input);
    Step step{input.pos, output.pos, code == 0, {}};
    if (ZSTD_isError(code) != 0) step.error = ZSTD_getErrorName(code);
    return step;
  }

  void restart() override { ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only); }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  std::unique_ptr<ZSTD_DCtx, Free> context_;
};

Decompressor::Decompressor(int fd, std::filesystem::path path, std::uint64_t packed_size,
                           Compression compression, const AccessPoint& start)
    : fd_(fd),
      path_(std::move(path)),
      packed_size_(packed_size),
      compression_(compression),
      buffer_(kBufferBytes),
      loaded_(start.packed),
      offset_(start.offset) {
  TRIREME_ASSERT(compression != Compression::none);
  if (compression == Compression::gzip) {
    codec_ = std::make_unique<GzipCodec>();
  } else {
    codec_ = std::make_unique<ZstdCodec>();
  }
}

Decompressor::Decompressor(Decompressor&&) noexcept = default;
Decompressor& Decompressor::operator=(Decompressor&&) noexcept = default;
Decompressor::~Decompressor() = default;

std::size_t Decompressor::read(std::span<std::byte> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const bool more = !input_.empty() || refill();
    if (!in_part_ && (!more || !begin_part())) {
      if (input_.empty() && loaded_ == packed_size_) break;
      continue;
    }
    // Call it without input too: the decoder may hold bytes that did not fit before.
    const Codec::Step step = codec_->step(input_, out.subspan(filled));
    if (!step.error.empty()) fail_at(step.error);
    input_ = input_.subspan(step.consumed);
    filled += step.produced;
    offset_ += step.produced;
    if (step.part_done) {
      in_part_ = false;
    } else if (step.consumed == 0 && step.produced == 0) {
      if (!more) fail_at("the file ends inside the compressed data: it is cut off");
      fail_at("the decoder makes no progress");
    }
  }
  return filled;
}

bool Decompressor::refill() {
  const std::uint64_t left = packed_size_ - loaded_;
  const std::span part(buffer_.data(), std::min<std::uint64_t>(buffer_.size(), left));
  if (!part.empty()) read_all(fd_, part, loaded_, path_);
  loaded_ += part.size();
  input_ = part;
  return !part.empty();
}

/// Begins a member or frame. Returns false if the rest of the input was padding.
bool Decompressor::begin_part() {
  const bool first = offset_ == 0 && points_.empty();
  if (compression_ == Compression::gzip && !first) {
    // Block devices and backup media pad a gzip file with zeros; gzip itself ignores them.
    while (!input_.empty() && input_.front() == std::byte{0}) input_ = input_.subspan(1);
    if (input_.empty()) return false;
    if (std::to_integer<char>(input_.front()) != kGzipMagic.front())
      fail_at("bytes after the end of a gzip member are not gzip");
  }
  if (points_.empty() || offset_ - points_.back().offset >= kPointSpacing)
    points_.push_back({offset_, packed_at()});
  codec_->restart();
  in_part_ = true;
  return true;
}

void Decompressor::fail_at(std::string_view what) const {
  fail(ErrorKind::data, "{}: damaged {} at byte {} of {}: {}", path_.string(),
       name_of(compression_), packed_at(), packed_size_, what);
}

}  // namespace trireme::data_prep
