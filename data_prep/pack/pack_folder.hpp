#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/files/file.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/pack/pack_config.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// An empty file that lies in a pack's folder while this lives. Throws Error(resource)
/// if it cannot be made.
class PartitionMarker {
 public:
  explicit PartitionMarker(std::filesystem::path path);
  ~PartitionMarker();
  PartitionMarker(const PartitionMarker&) = delete;
  PartitionMarker& operator=(const PartitionMarker&) = delete;
  PartitionMarker(PartitionMarker&&) = delete;
  PartitionMarker& operator=(PartitionMarker&&) = delete;

 private:
  std::filesystem::path path_;
};

/// The lock of one part: a file that lies in the folder while this lives.
class PartLock {
 public:
  /// Throws Error(usage) if another process on this machine makes that part, Error(resource) if the
  /// file cannot be made.
  explicit PartLock(std::filesystem::path path);
  ~PartLock();
  PartLock(const PartLock&) = delete;
  PartLock& operator=(const PartLock&) = delete;
  PartLock(PartLock&&) = delete;
  PartLock& operator=(PartLock&&) = delete;

 private:
  std::filesystem::path path_;
  Fd fd_;
};

/// The output folder of a pack: which shards are done, and nobody else's files. The folder itself
/// is the journal: a partition is done exactly when its shard lies there under its final name,
/// whole, with this pack's identity.
class PackFolder {
 public:
  /// `asked`: everything that decides the bytes, and its identity.
  /// Call prepare before anything else.
  PackFolder(std::filesystem::path path, Manifest asked, std::size_t num_partitions);

  /// `own`: the partitions of `part`, ascending.
  PackFolder(std::filesystem::path path, Manifest asked, std::size_t num_partitions, PackPart part,
             std::vector<std::size_t> own)
      : path_(std::move(path)),
        asked_(std::move(asked)),
        num_partitions_(num_partitions),
        part_(part),
        own_(std::move(own)) {}

  /// One rank only: makes the folder, locks it (a part: its part) against a second pack on this
  /// machine, removes what killed writers left. Returns the number of partitions that were being made when they ended.
  /// Throws Error(usage) if the folder holds something else, is locked, or is no place to write to.
  std::size_t prepare();

  /// One rank only, after prepare: the tokenizer's files inside the set, whole or not at all.
  /// Throws Error(usage) if other ones lie there.
  void place_tokenizer(const Tokenizer& tokenizer);

  /// After prepare, collective over `world` (null: this process alone): the own partitions without a
  /// shard, ascending, as rank 0 sees them, because views of a network folder may differ for a
  /// while; none when the manifest lies there and every shard. The ranks share in reading the
  /// shards and remove damaged ones. Throws Error(usage) for those of another pack.
  [[nodiscard]] std::optional<std::vector<std::size_t>> find_pending(Communicator* world) const;

  /// One rank only: if no shard lies in the folder, removes the tokenizer that place_tokenizer has
  /// put there, and the folder if prepare has made it. Fails silently, as it follows a failure.
  void remove_without_shards() const;

  /// Notes that a partition is being made as long as the marker lives. An empty file: those that a
  /// kill leaves tell what work has to be done again.
  [[nodiscard]] PartitionMarker mark(std::size_t partition) const;

  /// Of a finished set; on the rank that wrote it.
  [[nodiscard]] Manifest read_manifest() const;

  /// One rank only, when all own shards are there: how many of other parts are not, or are damaged and
  /// now gone.
  [[nodiscard]] std::size_t missing_of_others() const;

  [[nodiscard]] const std::vector<std::size_t>& own() const noexcept { return own_; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::size_t clean_and_check() const;
  /// Whether a temporary file may be of a pack that runs beside this one.
  [[nodiscard]] bool is_of_others(const std::string& temporary) const;
  void check_shards(const std::vector<std::size_t>& partitions, int rank, int size) const;
  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::vector<std::size_t> all() const;
  /// Those without a shard.
  [[nodiscard]] std::vector<std::size_t> pending(const std::vector<std::size_t>& partitions) const;

  std::filesystem::path path_;
  Manifest asked_;
  std::size_t num_partitions_;
  PackPart part_;
  std::vector<std::size_t> own_;
  bool is_new_ = false;  // prepare has made the folder
  bool has_placed_tokenizer_ = false;
  Fd lock_;
  std::optional<PartLock> part_lock_;
};

}  // namespace trireme
