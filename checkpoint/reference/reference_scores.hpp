#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// What a frozen reference says of every pair of a set, computed once by `trireme dpo-reference`.
///
/// A folder of two files:
///   reference.safetensors  sums [pairs, 2] F64, log p over the targets of chosen and rejected, NaN:
///                          not computed; counts [pairs, 2] I32, their targets
///   reference.json         format "trireme-reference", version 1, what it was made of, bytes and
///                          XXH3-128 of the other file; the last member is the hash of all before
namespace trireme {

/// What the scores are of. They serve no other data set or length; the weights may be any model's.
struct ReferenceOrigin {
  std::string set_xxh3_128;  // content hash of the token set, or of all of a mixture's
  std::int64_t seq_len = 0;  // tokens that pairs are cut at
  std::string weights_sha256;
  std::string precision = {};  // of the weights, "bf16"; not compared here, "": not known
};

struct ReferenceTable {
  ReferenceOrigin origin;
  std::vector<double> sums;          // [2 * pairs]: chosen, rejected
  std::vector<std::int32_t> counts;  // [2 * pairs]
};

/// Writes and publishes the folder by one rename; what a killed writer left in its place is removed.
/// By one rank. Throws Error(usage) if the folder exists, Error(resource) if the disk refuses.
void save_reference(const std::filesystem::path& folder, const ReferenceTable& table);

/// Whether the place is such a folder, and no checkpoint.
bool is_reference(const std::filesystem::path& folder);

/// All of it, checked. Throws Error(data) for what is not there, damaged or of a later version,
/// Error(usage) naming what differs from `expected` and how it is made anew.
ReferenceTable load_reference(const std::filesystem::path& folder, const ReferenceOrigin& expected);

/// The same checks alone, before a run begins.
void check_reference(const std::filesystem::path& folder, const ReferenceOrigin& expected);

}  // namespace trireme
