#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/dtype.hpp"
#include "core/files/file.hpp"

/// The safetensors format: 8-byte little-endian header length, JSON header, raw little-endian
/// tensors without gaps. Supported dtypes: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8. Source:
/// github.com/huggingface/safetensors, README "Format".
namespace trireme::checkpoint {

struct SafetensorsEntry {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
};

/// One file with a checked header: the length is at most 100 MB and within the file, no size
/// overflows, every size equals its shape, and the tensors cover the data without gaps or overlaps.
/// Throws Error(data) naming file and tensor.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, SafetensorsEntry>& entries() const noexcept {
    return entries_;
  }

  /// Copies the elements of the tensor; bytes.size() must equal the tensor size.
  void read(const std::string& name, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  Fd fd_;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
};

/// A tensor to write. `fill` produces its elements, so that only one tensor is in memory at a time.
/// If two ranks write parts of one tensor, both call `fill`.
struct SafetensorsSource {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::function<void(std::span<std::byte>)> fill;
};

/// Writes and fsyncs one new file: header padded to 8 bytes, {"__metadata__": {"format": "pt"}},
/// tensors in the given order. Each rank writes one range; no two ranks write to the same page.
/// Collective; throws the same error on all ranks.
void write_safetensors(const std::filesystem::path& path,
                       std::span<const SafetensorsSource> tensors, comm::Communicator& world);

/// Writes model.safetensors, or for more than `max_bytes` model-00001-of-0000N.safetensors and
/// model.safetensors.index.json. Collective.
void write_safetensors_directory(const std::filesystem::path& directory,
                                 std::span<const SafetensorsSource> tensors,
                                 comm::Communicator& world,
                                 std::uint64_t max_bytes = 5'000'000'000);

/// Opens all tensors of such a directory, by name; each file is opened once. Throws Error(data) if
/// - neither form exists, or model.safetensors exists beside an index of other files;
/// - the index names a tensor that its file lacks, or a file outside the directory;
/// - a file contains a tensor that the index does not name.
std::map<std::string, std::shared_ptr<const SafetensorsFile>> open_safetensors_directory(
    const std::filesystem::path& directory);

}  // namespace trireme::checkpoint
