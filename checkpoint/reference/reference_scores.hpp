#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// Log-probabilities that a frozen reference model gives the preference pairs of one or several
/// token sets, computed once by `trireme dpo-reference`.
///
/// A directory of two files:
///   reference.safetensors  one row a pair, the sets one after another, documents ascending:
///                          sums [pairs, 2] F64, log p over the targets of chosen and rejected;
///                          counts [pairs, 2] I32, their targets; documents [pairs] I64, the
///                          pair's document in its set; keys [pairs] U64, Batch::pair_keys
///   reference.json         format "trireme-reference", version 2, weights_sha256, precision,
///                          score (dpo.score), sets: [{name, content_xxh3, seq_len, num_pairs}],
///                          bytes and xxh3_128 of the other file; the last member is the hash of
///                          all before it
/// Version 1 is read as well: one set, all its documents in order without keys, NaN for a pair that
/// was not scored; its keys are set_xxh3_128, seq_len and num_pairs instead of score and sets.
namespace trireme {

/// The model and the score that all log-probabilities of a table are of.
struct ReferenceOrigin {
  std::string weights_sha256;
  std::string precision = {};  // of the weights, "bf16"; "": not known
  std::string score = "all";   // dpo.score

  bool operator==(const ReferenceOrigin&) const = default;
};

/// The scored pairs of one token set at one sequence length.
struct ReferenceSet {
  std::string name;                       // as dpo-reference was given it; for messages
  std::string content_xxh3;               // content hash of the token set
  std::int64_t seq_len = 0;               // tokens that a side was cut at
  std::vector<std::int64_t> documents{};  // [pairs] ascending
  std::vector<std::uint64_t> keys{};      // [pairs]; empty: version 1, which has none
  std::vector<double> sums{};             // [2 * pairs]: chosen, rejected
  std::vector<std::int32_t> counts{};     // [2 * pairs]

  /// Returns true if the pair that is this document was scored.
  [[nodiscard]] bool has(std::int64_t document) const;
};

struct ReferenceTable {
  ReferenceOrigin origin;
  std::vector<ReferenceSet> sets;

  /// Returns the set with this content that was scored at this length; null if there is none.
  [[nodiscard]] const ReferenceSet* find(const std::string& content_xxh3,
                                         std::int64_t seq_len) const;
};

/// Writes and publishes the directory by one rename; removes what a killed writer left in its
/// place. Called by one rank. Throws Error(usage) if the directory exists, Error(resource) if the
/// disk refuses.
void save_reference(const std::filesystem::path& folder, const ReferenceTable& table);

/// Returns true if `folder` is such a directory and not a checkpoint.
bool is_reference(const std::filesystem::path& folder);

/// Reads and checks all of it. Throws Error(data) if a file is missing, damaged or of a later
/// version.
ReferenceTable load_reference(const std::filesystem::path& folder);

}  // namespace trireme
