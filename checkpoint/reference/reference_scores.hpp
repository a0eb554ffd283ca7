#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// Log-probabilities that a frozen reference model assigns to the preference pairs of one or
/// several token sets, computed once by `trireme dpo-reference`.
///
/// A directory of two files:
///   reference.safetensors  one row per pair, ordered by token set and document:
///                          sums [pairs, 2] F64, log p over the targets of chosen and rejected;
///                          counts [pairs, 2] I32, number of targets; documents [pairs] I64, the
///                          document of the pair in its set; keys [pairs] U64, Batch::pair_keys
///   reference.json         format "trireme-reference", version 2, weights_sha256, precision,
///                          score (dpo.score), sets: [{name, content_xxh3, seq_len, num_pairs}],
///                          bytes and xxh3_128 of the other file; the last member is the hash of
///                          all preceding bytes
/// Version 1 is also supported: one set, all documents in order without keys, NaN for a pair
/// without a score; its keys are set_xxh3_128, seq_len and num_pairs instead of score and sets.
namespace trireme::checkpoint {

/// The model and the score type of all log-probabilities of a table.
struct ReferenceOrigin {
  std::string weights_sha256;
  std::string precision = {};  // dtype of the weights, "bf16"; "": unknown
  std::string score = "all";   // dpo.score

  bool operator==(const ReferenceOrigin&) const = default;
};

/// The scored pairs of one token set at one sequence length.
struct ReferenceSet {
  std::string name;                       // path given to dpo-reference; for messages
  std::string content_xxh3;               // content hash of the token set
  std::int64_t seq_len = 0;               // maximum number of tokens of a side
  std::vector<std::int64_t> documents{};  // [pairs] ascending
  std::vector<std::uint64_t> keys{};      // [pairs]; empty: version 1
  std::vector<double> sums{};             // [2 * pairs]: chosen, rejected
  std::vector<std::int32_t> counts{};     // [2 * pairs]

  /// Returns true if the pair of this document was scored.
  [[nodiscard]] bool has(std::int64_t document) const;
};

struct ReferenceTable {
  ReferenceOrigin origin;
  std::vector<ReferenceSet> sets;

  /// Returns the set with this content that was scored at this length; null if there is none.
  [[nodiscard]] const ReferenceSet* find(const std::string& content_xxh3,
                                         std::int64_t seq_len) const;
};

/// Writes the directory and publishes it by one rename. Removes the temporary files of a killed
/// writer. Called by one rank. Throws Error(usage) if the directory exists, Error(resource) if a
/// disk operation fails.
void save_reference(const std::filesystem::path& directory, const ReferenceTable& table);

/// Returns true if `directory` contains reference scores (and not a checkpoint).
bool is_reference(const std::filesystem::path& directory);

/// Reads and checks the whole table. Throws Error(data) if a file is missing, damaged or of a newer
/// version.
ReferenceTable load_reference(const std::filesystem::path& directory);

}  // namespace trireme::checkpoint
