#include "checkpoint/gguf/gguf_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "checkpoint/exchange/convert.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32;  // alignment of tensors without the key general.alignment
constexpr std::size_t kBlockBytes = sizeof(std::uint16_t) + kBlockElements;
constexpr std::size_t kReadBytes = 4 << 20;

/// Types of values.
constexpr std::uint32_t kNumber = 4;
constexpr std::uint32_t kSigned = 5;
constexpr std::uint32_t kReal = 6;
constexpr std::uint32_t kFlag = 7;
constexpr std::uint32_t kText = 8;
constexpr std::uint32_t kList = 9;

template <class Value>
void append(std::string& bytes, Value value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof value);
}

void append_text(std::string& bytes, std::string_view text) {
  append(bytes, std::uint64_t{text.size()});
  bytes += text;
}

std::uint64_t num_elements(const GgufTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= static_cast<std::uint64_t>(size);
  return count;
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Returns all bytes before the first tensor.
std::string header(const GgufValues& values, std::span<const GgufTensor> tensors) {
  std::string bytes(kMagic);
  append(bytes, kVersion);
  append(bytes, std::uint64_t{tensors.size()});
  append(bytes, values.count());
  bytes += values.bytes();
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    append_text(bytes, tensor.name);
    append(bytes, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      append(bytes, static_cast<std::uint64_t>(*size));
    append(bytes, static_cast<std::uint32_t>(tensor.type));
    append(bytes, offset);
    offset += aligned(gguf_bytes(tensor.type, num_elements(tensor)));
  }
  bytes.resize(aligned(bytes.size()), '\0');
  return bytes;
}

/// Appends to a file and hashes what it appends.
class HashedFile {
 public:
  explicit HashedFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
    if (!fd_) fail_to_write("create", path, errno);
  }

  void append(std::span<const std::byte> bytes) {
    write_all(fd_.get(), bytes, size_, path_);
    size_ += bytes.size();
    hasher_.update(bytes);
  }

  /// Throws Error(resource) if the file does not have the appended bytes.
  void check() {
    sync_file(fd_.get(), path_);
    const Fd file = open_read(path_);
    Hasher found;
    std::vector<std::byte> part(kReadBytes);
    for (std::uint64_t offset = 0; offset < size_; offset += part.size()) {
      part.resize(std::min<std::uint64_t>(kReadBytes, size_ - offset));
      read_all(file.get(), part, offset, path_);
      found.update(part);
    }
    if (found.hex() != hasher_.hex())
      fail(ErrorKind::resource, "{} reads back with other bytes than were written. Check the disk",
           path_.string());
  }

 private:
  std::filesystem::path path_;
  Fd fd_;
  std::uint64_t size_ = 0;
  Hasher hasher_;
};

}  // namespace

std::optional<GgufType> gguf_type(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, GgufType>, 4> kNames{{{"f32", GgufType::f32},
                                                                         {"f16", GgufType::f16},
                                                                         {"bf16", GgufType::bf16},
                                                                         {"q8_0", GgufType::q8_0}}};
  for (const auto& [known, type] : kNames)
    if (known == name) return type;
  return std::nullopt;
}

std::uint64_t gguf_bytes(GgufType type, std::uint64_t count) {
  if (type == GgufType::q8_0) return count / kBlockElements * kBlockBytes;
  return count * (type == GgufType::f32 ? 4 : 2);
}

void quantize_q8_0(std::span<const float> values, std::span<std::byte> blocks) {
  TRIREME_ASSERT(values.size() % kBlockElements == 0);
  TRIREME_ASSERT(blocks.size() == gguf_bytes(GgufType::q8_0, values.size()));
  for (std::byte* block = blocks.data(); !values.empty();
       block += kBlockBytes, values = values.subspan(kBlockElements)) {
    float largest = 0;
    for (const float value : values.first(kBlockElements))
      largest = std::max(largest, std::abs(value));
    const float scale = largest / 127.0F;
    const float inverse = scale == 0 ? 0 : 1.0F / scale;
    const std::uint16_t half = to_f16_bits(scale);
    std::memcpy(block, &half, sizeof half);
    for (std::size_t i = 0; i < kBlockElements; ++i)
      block[sizeof half + i] =
          static_cast<std::byte>(static_cast<std::int8_t>(std::round(values[i] * inverse)));
  }
}

void GgufValues::begin(std::string_view key, std::uint32_t type) {
  append_text(bytes_, key);
  append(bytes_, type);
  ++count_;
}

void GgufValues::text(std::string_view key, std::string_view value) {
  begin(key, kText);
  append_text(bytes_, value);
}

void GgufValues::number(std::string_view key, std::uint32_t value) {
  begin(key, kNumber);
  append(bytes_, value);
}

void GgufValues::real(std::string_view key, double value) {
  begin(key, kReal);
  append(bytes_, static_cast<float>(value));
}

void GgufValues::flag(std::string_view key, bool value) {
  begin(key, kFlag);
  append(bytes_, static_cast<std::uint8_t>(value));
}

void GgufValues::texts(std::string_view key, const std::vector<std::string>& values) {
  begin(key, kList);
  append(bytes_, kText);
  append(bytes_, std::uint64_t{values.size()});
  for (const std::string& value : values) append_text(bytes_, value);
}

void GgufValues::numbers(std::string_view key, const std::vector<std::int32_t>& values) {
  begin(key, kList);
  append(bytes_, kSigned);
  append(bytes_, std::uint64_t{values.size()});
  for (const std::int32_t value : values) append(bytes_, value);
}

void GgufValues::reals(std::string_view key, const std::vector<float>& values) {
  begin(key, kList);
  append(bytes_, kReal);
  append(bytes_, std::uint64_t{values.size()});
  for (const float value : values) append(bytes_, value);
}

void write_gguf(const std::filesystem::path& path, const GgufValues& values,
                std::span<const GgufTensor> tensors,
                const std::function<void(std::uint64_t)>& on_bytes) {
  HashedFile file(path);
  const std::string start = header(values, tensors);
  file.append(std::as_bytes(std::span(start)));
  std::vector<std::byte> bytes;
  for (const GgufTensor& tensor : tensors) {
    const std::uint64_t size = gguf_bytes(tensor.type, num_elements(tensor));
    bytes.assign(aligned(size), std::byte{0});
    tensor.fill(std::span(bytes).first(size));
    if (tensor.type == GgufType::f16) check_f16_range(tensor.name, std::span(bytes).first(size));
    file.append(bytes);
    on_bytes(size);
  }
  file.check();
}

}  // namespace trireme::checkpoint
