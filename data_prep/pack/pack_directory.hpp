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

namespace trireme::data_prep {

/// Thrown after a stop signal: the current partition is dropped, and only its work is lost.
struct PartitionDropped {};

/// An empty file that exists in the directory of a pack as long as this object.
class MarkerFile {
 public:
  /// Throws Error(resource) if the file cannot be created. With `lock`: throws Error(usage) if
  /// another process on this machine has locked the file, because that process makes the same part.
  explicit MarkerFile(std::filesystem::path path, bool lock = false);
  ~MarkerFile();
  MarkerFile(const MarkerFile&) = delete;
  MarkerFile& operator=(const MarkerFile&) = delete;

 private:
  std::filesystem::path path_;
  Fd fd_;
};

/// The shards in the directory of a pack as rank 0 sees them. On a network file system, other ranks
/// may see other files for a while. The lists hold the numbers of shards of the part, ascending.
struct PackDirectoryState {
  bool is_finished = false;  // the manifest and every shard exist
  std::vector<std::size_t> missing;
  std::vector<std::size_t> kept;
};

/// The output directory of a pack. It records the progress: a partition is done exactly if its
/// shard exists under its final name, complete, with the identity of this pack. Refuses foreign
/// files.
class PackDirectory {
 public:
  /// `asked`: everything that determines the bytes of the set, and its identity. `shards`: the
  /// shards of `part`, ascending. Call prepare before all other functions.
  PackDirectory(std::filesystem::path path, data::Manifest asked, std::size_t num_shards,
                PackPart part, std::vector<std::size_t> shards)
      : path_(std::move(path)),
        asked_(std::move(asked)),
        num_shards_(num_shards),
        part_(part),
        shards_(std::move(shards)) {}

  /// Rank 0 creates the directory, locks it (or its part) against a second pack on this machine,
  /// removes leftovers of killed writers, and writes the files of the tokenizer (null: none), all
  /// or none. Returns the number of shards that the last pack did not finish. Collective over
  /// `world`. Throws Error(usage) (the other ranks PeerFailed) if the directory has other content
  /// or another tokenizer, is locked, or is not writable.
  std::size_t prepare(const text::Tokenizer* tokenizer, comm::Communicator& world);

  /// Finds the existing shards. The ranks split the reading and remove damaged shards. Call this
  /// function after prepare. Collective over `world`. Throws Error(usage) for shards of another
  /// pack.
  [[nodiscard]] PackDirectoryState look(comm::Communicator& world) const;

  /// Compares shards with the current inputs, byte by byte. (Fingerprints cover only the size and
  /// the ends of an input.)
  ///   shards  the shards that this rank compares, in the best order for reading
  ///   hash    returns the current value of input_xxh3 in /meta; may throw PartitionDropped
  ///   place   returns the inputs of the shard, for a message
  /// Returns the number of shards that were not compared because of a stop signal. Throws
  /// Error(usage) naming the first input that has changed, Error(data) for a damaged shard.
  std::uint64_t compare(const std::vector<std::size_t>& shards,
                        const std::function<std::string(std::size_t shard)>& hash,
                        const std::function<std::string(std::size_t shard)>& place) const;

  /// If the directory contains no shard, removes the tokenizer and the directory that prepare has
  /// created. Any rank may call it; the other ranks may be working. Ignores errors, because it is
  /// called after a failure.
  void remove_without_shards() const;

  /// Marks a shard as being made as long as the marker lives. Markers that a kill leaves show which
  /// shards must be made again.
  [[nodiscard]] MarkerFile mark(std::size_t shard) const;

  /// Reads the manifest of a finished set. Only on the rank that wrote it.
  [[nodiscard]] data::Manifest read_manifest() const;

  /// Returns the number of missing or damaged shards of other parts; removes damaged ones. Called
  /// by one rank, when all shards of this part exist.
  [[nodiscard]] std::size_t missing_of_others() const;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void make_and_lock();
  std::size_t clean_and_check() const;
  void place_tokenizer(const text::Tokenizer& tokenizer);
  /// Returns true if a temporary file may belong to a pack that runs at the same time.
  [[nodiscard]] bool is_of_others(const std::string& temporary) const;
  void check_shards(const std::vector<std::size_t>& shards, int rank, int size) const;
  [[nodiscard]] bool is_finished() const;
  [[nodiscard]] std::vector<std::size_t> missing(const std::vector<std::size_t>& shards) const;

  std::filesystem::path path_;
  data::Manifest asked_;
  std::size_t num_shards_;
  PackPart part_;
  std::vector<std::size_t> shards_;
  bool is_new_ = false;  // prepare has created the directory
  bool has_placed_tokenizer_ = false;
  Fd lock_;
  std::optional<MarkerFile> part_lock_;
};

/// Describes why the set of `asked` differs from the set `found` in the output directory, as
/// options with both values: "--seq-len is 512 in the data set, 2048 in this command; the input
/// b.jsonl has changed". Both manifests belong to a pack or an import and have different
/// identities.
std::string describe_difference(const data::Manifest& found, const data::Manifest& asked);

/// Describes the difference with a shard of an unfinished set. The text begins with ": ".
std::string describe_difference(const data::ShardMeta& found, const data::Manifest& asked,
                                std::size_t num_shards);

/// Returns the numbers 0 to num_shards - 1.
std::vector<std::size_t> all_shards(std::size_t num_shards);

}  // namespace trireme::data_prep
