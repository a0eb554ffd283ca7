#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/files/file.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/pack/pack_config.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Thrown when a stop signal came: the partition in hand is given up, nothing is lost but its work.
struct PartitionDropped {};

/// An empty file that lies in a pack's folder while this lives.
class MarkerFile {
 public:
  /// Throws Error(resource) if the file cannot be made. With `lock`: Error(usage) if another process
  /// on this machine holds the file, because it makes the same part.
  explicit MarkerFile(std::filesystem::path path, bool lock = false);
  ~MarkerFile();
  MarkerFile(const MarkerFile&) = delete;
  MarkerFile& operator=(const MarkerFile&) = delete;
  MarkerFile(MarkerFile&&) = delete;
  MarkerFile& operator=(MarkerFile&&) = delete;

 private:
  std::filesystem::path path_;
  Fd fd_;
};

/// The shards in the folder of a pack, as rank 0 sees it, because views of a network folder may differ
/// for a while. Shards are numbers, ascending, of the part.
struct FolderState {
  bool is_finished = false;  // the manifest lies there and every shard
  std::vector<std::size_t> missing;
  std::vector<std::size_t> kept;
};

/// The output folder of a pack: which shards are done, and nobody else's files. The folder itself
/// is the journal: a partition is done exactly when its shard lies there under its final name,
/// whole, with this pack's identity.
class PackFolder {
 public:
  /// `asked`: everything that decides the bytes, and its identity. `shards`: those of `part`,
  /// ascending. Call prepare before anything else.
  PackFolder(std::filesystem::path path, Manifest asked, std::size_t num_shards, PackPart part,
             std::vector<std::size_t> shards)
      : path_(std::move(path)),
        asked_(std::move(asked)),
        num_shards_(num_shards),
        part_(part),
        shards_(std::move(shards)) {}

  /// Collective over `world`. Rank 0 makes the folder, locks it (a part: its part) against a second
  /// pack on this machine, removes what killed writers left, and puts the tokenizer's files inside
  /// (null: there is none), whole or not at all. Returns the number of shards that were being made
  /// when the last pack ended. Throws Error(usage), the others PeerFailed, if the folder holds
  /// something else or another tokenizer, is locked, or is no place to write to.
  std::size_t prepare(const Tokenizer* tokenizer, Communicator& world);

  /// After prepare, collective over `world`. The ranks share in reading the shards and remove damaged
  /// ones. Throws Error(usage) for those of another pack.
  [[nodiscard]] FolderState look(Communicator& world) const;

  /// Compares shards with the inputs as they are now. Fingerprints see the size and the ends of an
  /// input only; this sees every byte.
  ///   shards  those that this rank compares, in the order in which they are read best
  ///   hash    what /meta's input_xxh3 would be now; may throw PartitionDropped
  ///   place   the shard's inputs, for a message
  /// Returns the number of shards that were not compared because a stop signal came. Throws
  /// Error(usage) naming the first input that has changed, Error(data) for a damaged shard.
  std::uint64_t compare(const std::vector<std::size_t>& shards,
                        const std::function<std::string(std::size_t shard)>& hash,
                        const std::function<std::string(std::size_t shard)>& place) const;

  /// If no shard lies in the folder, removes the tokenizer that prepare has put there, and the folder
  /// if prepare has made it. Any rank; the others may be at work. Fails silently, as it follows a
  /// failure.
  void remove_without_shards() const;

  /// Notes that a shard is being made as long as the marker lives: the markers that a kill leaves
  /// tell what work has to be done again.
  [[nodiscard]] MarkerFile mark(std::size_t shard) const;

  /// Of a finished set; on the rank that wrote it.
  [[nodiscard]] Manifest read_manifest() const;

  /// One rank only, when all shards of the part are there: how many of other parts are not, or are
  /// damaged and now gone.
  [[nodiscard]] std::size_t missing_of_others() const;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void make_and_lock();
  std::size_t clean_and_check() const;
  void place_tokenizer(const Tokenizer& tokenizer);
  /// Whether a temporary file may be of a pack that runs beside this one.
  [[nodiscard]] bool is_of_others(const std::string& temporary) const;
  void check_shards(const std::vector<std::size_t>& shards, int rank, int size) const;
  [[nodiscard]] bool is_finished() const;
  [[nodiscard]] std::vector<std::size_t> missing(const std::vector<std::size_t>& shards) const;

  std::filesystem::path path_;
  Manifest asked_;
  std::size_t num_shards_;
  PackPart part_;
  std::vector<std::size_t> shards_;
  bool is_new_ = false;  // prepare has made the folder
  bool has_placed_tokenizer_ = false;
  Fd lock_;
  std::optional<MarkerFile> part_lock_;
};

/// Returns what makes the set of `asked` another one than the set `found` in the output folder, as
/// options with both values: "--seq-len is 512 there, 2048 here; the input b.jsonl has changed".
/// Both manifests are those of a pack or an import, with different identities.
std::string describe_difference(const Manifest& found, const Manifest& asked);

/// Describes the difference by a shard of an unfinished set. The text begins with ": ".
std::string describe_difference(const ShardMeta& found, const Manifest& asked,
                                std::size_t num_shards);

/// Returns the numbers of `num_shards` shards.
std::vector<std::size_t> all_shards(std::size_t num_shards);

}  // namespace trireme
