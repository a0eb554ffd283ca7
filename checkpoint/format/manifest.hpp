#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "parallel/slice.hpp"

/// manifest.json describes a checkpoint. docs/formats/checkpoint.md specifies the format.
namespace trireme::checkpoint {

inline constexpr std::uint64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

/// One slice of a logical tensor: raw little-endian elements in a contiguous HDF5 dataset.
struct SavedSlice {
  std::uint64_t shard = 0;  // index into CheckpointManifest::shards
  std::string dataset;      // path inside that file
  std::uint64_t at = 0;     // byte position of the elements in that file
  parallel::Slice part;     // the elements in global coordinates
  std::string hash;         // hash of the elements: crc32c (8 digits); old files: xxh3-128 (32)
};

struct SavedTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<SavedSlice> slices;  // cover every element exactly once

  [[nodiscard]] std::int64_t count() const noexcept;
};

struct SavedFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string hash;  // xxh3-128 of the whole file
};

struct CheckpointManifest {
  std::string run_id;
  std::int64_t step = 0;
  std::map<std::string, std::string> values;
  std::vector<SavedFile> files;   // copied files, by name
  std::vector<SavedFile> shards;  // HDF5
  std::map<std::string, SavedTensor> tensors;
};

/// Returns the text with a hash of all preceding bytes at its end. Equal manifests give equal text.
std::string manifest_text(const CheckpointManifest& manifest);

/// Checks the hash before parsing. Then checks every name, size and range, and that the slices of
/// each tensor cover it exactly once. `where` names the text in errors. Throws Error(data).
CheckpointManifest parse_manifest(std::string_view text, std::string_view where);

/// Formats the part of a manifest that one writer knows (its shard and its slices), without the
/// self hash. One rank merges the parts.
std::string manifest_part_text(const CheckpointManifest& part);
CheckpointManifest parse_manifest_part(std::string_view text, std::string_view where);

/// The largest manifest that a reader accepts. It has room for about five million slices.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

/// Returns the reason why the text is too large for readers; "" if it is not.
std::string size_problem(std::string_view text);

/// Adds the shards and slices of `part`. Throws Error(internal) if writers disagree on the dtype or
/// shape of a tensor.
void merge_manifest(CheckpointManifest& whole, const CheckpointManifest& part);

/// Throws Error(data) with a list of problems unless the slices of every tensor cover it exactly
/// once.
void check_manifest(const CheckpointManifest& manifest, std::string_view where);

/// Returns true for a plain file name: 1 to 128 of [A-Za-z0-9._-], not beginning with a dot.
bool is_plain_name(std::string_view name) noexcept;
/// Returns true for a logical tensor name: plain names joined by '/', at most 256 characters.
bool is_tensor_name(std::string_view name) noexcept;

/// Returns "step-000000040". Throws Error(usage) for a step outside [0, 999999999].
std::string step_directory_name(std::int64_t step);
/// Returns the step of such a name; -1 for any other name.
std::int64_t step_of_directory_name(std::string_view name) noexcept;

}  // namespace trireme::checkpoint
