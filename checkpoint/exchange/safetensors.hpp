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
/// tensors without holes. Source: github.com/huggingface/safetensors, README "Format". Dtypes here:
/// F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8.
namespace trireme {

struct SafetensorsEntry {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
};

/// One file, header checked before any tensor is read: length at most 100 MB and within the file,
/// no overflow, every size equal to its shape, the tensors covering the data exactly, none
/// overlapping. Throws Error(data) naming file and tensor.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, SafetensorsEntry>& entries() const noexcept {
    return entries_;
  }

  /// The tensor's elements; bytes.size() must be its size.
  void read(const std::string& name, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  Fd fd_;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
};

/// A tensor to write; `fill` is asked for its elements, so one tensor is in memory at a time. Where
/// two ranks write parts of one, both ask.
struct SafetensorsSource {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::function<void(std::span<std::byte>)> fill;
};

/// Collective: writes and fsyncs one new file: header padded to 8 bytes, {"__metadata__":
/// {"format": "pt"}}, tensors in the given order. Each rank writes one stretch, cut where no two
/// ranks touch the same page. Throws the same on all ranks.
void write_safetensors(const std::filesystem::path& path,
                       std::span<const SafetensorsSource> tensors, Communicator& world);

/// Collective: model.safetensors, or beyond `max_bytes` model-00001-of-0000N.safetensors and
/// model.safetensors.index.json.
void write_safetensors_folder(const std::filesystem::path& folder,
                              std::span<const SafetensorsSource> tensors, Communicator& world,
                              std::uint64_t max_bytes = 5'000'000'000);

/// All tensors of a folder written so, by name; each file is opened once. Throws Error(data) if
/// neither form is there, or model.safetensors beside an index of other files; if the index names a
/// tensor its file lacks, or a file outside the folder; if a file holds what the index does not
/// name.
std::map<std::string, std::shared_ptr<const SafetensorsFile>> open_safetensors_folder(
    const std::filesystem::path& folder);

}  // namespace trireme
