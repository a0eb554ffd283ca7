#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The GGUF file format, version 3, little-endian. Source: github.com/ggml-org/ggml,
/// docs/gguf.md.
namespace trireme::checkpoint {

/// Element types of tensors.
enum class GgufType : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

/// Returns the type with the name "f32", "f16", "bf16" or "q8_0"; none for other names.
std::optional<GgufType> gguf_type(std::string_view name);

/// Returns the bytes of `count` elements. Elements of q8_0 form blocks of 32.
std::uint64_t gguf_bytes(GgufType type, std::uint64_t count);

/// Number of elements of a q8_0 block.
inline constexpr std::size_t kBlockElements = 32;

/// Quantizes rows to blocks: a block has a scale in f16, the largest magnitude / 127, and 32
/// signed bytes, rounded half away from zero. `values` has a multiple of 32 elements. Source:
/// ggml (quantize_row_q8_0_ref).
void quantize_q8_0(std::span<const float> values, std::span<std::byte> blocks);

/// The metadata of a file: keys with values, in order.
class GgufValues {
 public:
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, std::uint32_t value);
  void real(std::string_view key, double value);  // stored as f32
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void numbers(std::string_view key, const std::vector<std::int32_t>& values);
  void reals(std::string_view key, const std::vector<float>& values);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  void begin(std::string_view key, std::uint32_t type);

  std::string bytes_;
  std::uint64_t count_ = 0;
};

/// A tensor to write. `fill` produces its bytes, so that only one tensor is in memory at a time.
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<std::int64_t> shape;  // row-major, as everywhere in Trireme; the file has it reversed
  std::function<void(std::span<std::byte>)> fill;
};

/// Writes and fsyncs one new file, then reads it back and compares a hash of all bytes. Throws
/// Error(resource) if the file cannot be written or reads back differently. `on_bytes` is called
/// with the number of bytes of each tensor.
void write_gguf(const std::filesystem::path& path, const GgufValues& values,
                std::span<const GgufTensor> tensors,
                const std::function<void(std::uint64_t)>& on_bytes);

}  // namespace trireme::checkpoint
