#include "data_prep/pack/pack_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/folders.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/shard_reader.hpp"
#include "data_prep/pack/set_difference.hpp"

namespace trireme {
namespace {

constexpr std::string_view kMarkerPrefix = ".tmp.unit-";
constexpr std::string_view kPartPrefix = ".tmp.part-";

std::vector<std::uint64_t> broadcast_list(std::vector<std::uint64_t> list, Communicator& world) {
  list.resize(broadcast_value<std::uint64_t>(world, list.size(), 0, "partitions"));
  if (list.empty()) return list;
  world
      .broadcast({.data = list.data(),
                  .count = list.size(),
                  .dtype = DType::u64,
                  .root = 0,
                  .tag = "partitions"})
      ->wait();
  return list;
}

}  // namespace

PartitionMarker::PartitionMarker(std::filesystem::path path) : path_(std::move(path)) {
  const Fd fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) fail_to_write("create", path_, errno);
}

PartitionMarker::~PartitionMarker() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

PartLock::PartLock(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd_) fail_to_write("create", path_, errno);
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(ErrorKind::usage, "another pack makes this part ({}); wait for it", path_.string());
}

PartLock::~PartLock() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

PackFolder::PackFolder(std::filesystem::path path, Manifest asked, std::size_t num_partitions)
    : path_(std::move(path)), asked_(std::move(asked)), num_partitions_(num_partitions) {
  own_ = all();
}

std::size_t PackFolder::prepare() {
  std::error_code ignored;
  is_new_ = !std::filesystem::exists(path_, ignored);
  make_folders(path_);
  std::optional<Fd> lock = lock_folder(path_, /*shared=*/!part_.is_whole());
  if (::access(path_.c_str(), W_OK | X_OK) != 0) fail_to_write("write to", path_, errno);
  if (!lock) {
    fail(ErrorKind::usage, "another pack is writing to {}; wait for it, or use another --output",
         path_.string());
  }
  lock_ = std::move(*lock);
  if (!part_.is_whole()) part_lock_.emplace(path_ / cat(kPartPrefix, part_.index + 1));
  return clean_and_check();
}

void PackFolder::remove_without_shards() const {
  std::error_code ignored;
  for (std::size_t i = 0; i < num_partitions_; ++i) {
    if (std::filesystem::exists(path_ / schema::shard_name(i), ignored)) return;
  }
  if (std::filesystem::exists(path_ / schema::kManifest, ignored)) return;
  if (has_placed_tokenizer_) std::filesystem::remove_all(path_ / schema::kTokenizerFolder, ignored);
  if (is_new_) std::filesystem::remove(path_, ignored);  // refuses a folder that holds anything
}

std::size_t PackFolder::clean_and_check() const {
  std::set<std::string> known{std::string(schema::kManifest),
                              std::string(schema::kTokenizerFolder)};
  for (std::size_t i = 0; i < num_partitions_; ++i) known.insert(schema::shard_name(i));
  std::vector<std::filesystem::path> leftovers;
  std::size_t interrupted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    const bool temporary =
        name.starts_with(schema::kTemporaryPrefix) || name.starts_with("manifest.json.tmp.");
    if (temporary) {
      if (is_of_others(name)) continue;
      leftovers.push_back(entry.path());
      if (name.starts_with(kMarkerPrefix)) ++interrupted;
    } else if (!known.contains(name)) {
      fail(
          ErrorKind::usage,
          "{} holds '{}', which this pack would not make: the folder belongs to something else; use another --output",
          path_.string(), name);
    }
  }
  for (const std::filesystem::path& leftover : leftovers) remove_tree(leftover);
  return interrupted;
}

bool PackFolder::is_of_others(const std::string& temporary) const {
  if (part_.is_whole()) return false;
  return std::ranges::none_of(own_, [&](std::size_t partition) {
    return temporary == cat(kMarkerPrefix, partition) ||
           temporary.starts_with(cat(schema::kTemporaryPrefix, schema::shard_name(partition), "."));
  });
}

std::size_t PackFolder::missing_of_others() const {
  if (part_.is_whole()) return 0;
  check_shards(all(), 0, 1);
  return pending(all()).size();
}

PartitionMarker PackFolder::mark(std::size_t partition) const {
  return PartitionMarker(path_ / cat(kMarkerPrefix, partition));
}

void PackFolder::place_tokenizer(const Tokenizer& tokenizer) {
  const std::filesystem::path target = path_ / schema::kTokenizerFolder;
  const auto check_files = [&] {
    for (const auto& [name, content] : tokenizer.files()) {
      if (!std::filesystem::exists(target / name) || read_file(target / name) != content) {
        fail(ErrorKind::usage, "{} holds another tokenizer; use another --output", target.string());
      }
    }
  };
  if (std::filesystem::exists(target)) return check_files();
  const std::filesystem::path temporary =
      path_ / cat(schema::kTemporaryPrefix, schema::kTokenizerFolder, part_.index + 1);
  make_folders(temporary);
  for (const auto& [name, content] : tokenizer.files())
    write_file_atomic(temporary / name, content);
  const auto refusal = capture([&] { publish(temporary, target); });
  has_placed_tokenizer_ = !refusal;
  if (!refusal) return;
  if (part_.is_whole() || !std::filesystem::exists(target)) throw Error(*refusal);
  remove_tree(temporary);  // another part was faster
  check_files();
}

std::optional<std::vector<std::size_t>> PackFolder::find_pending(Communicator* world) const {
  const int rank = world == nullptr ? 0 : world->rank();
  std::uint64_t done = rank == 0 && finished() ? 1 : 0;
  if (world != nullptr) done = broadcast_value(*world, done, 0, "done");
  if (done != 0) return std::nullopt;
  check_shards(own_, rank, world == nullptr ? 1 : world->size());
  if (world == nullptr) return pending(own_);
  world->barrier();
  std::vector<std::uint64_t> partitions;
  if (rank == 0) {
    const std::vector<std::size_t> mine = pending(own_);
    partitions.assign(mine.begin(), mine.end());
  }
  partitions = broadcast_list(std::move(partitions), *world);
  return std::vector<std::size_t>(partitions.begin(), partitions.end());
}

Manifest PackFolder::read_manifest() const {
  const std::filesystem::path path = path_ / schema::kManifest;
  return Manifest::from_text(read_file(path), path);
}

bool PackFolder::finished() const {
  if (!std::filesystem::exists(path_ / schema::kManifest)) return false;
  const Manifest manifest = read_manifest();
  if (manifest.identity != asked_.identity) {
    fail(ErrorKind::usage, "{} holds a set made otherwise: {}; use another --output",
         path_.string(), describe_difference(manifest, asked_));
  }
  const std::vector<std::size_t> lost = pending(all());
  for (const std::size_t partition : lost) {
    log::warn(formatted("{} is lost; it is made again",
                        (path_ / schema::shard_name(partition)).string()));
  }
  return lost.empty();
}

void PackFolder::check_shards(const std::vector<std::size_t>& partitions, int rank,
                              int size) const {
  for (auto i = static_cast<std::size_t>(rank); i < partitions.size();
       i += static_cast<std::size_t>(size)) {
    const std::filesystem::path path = path_ / schema::shard_name(partitions[i]);
    if (!std::filesystem::exists(path)) continue;
    ShardMeta meta;
    try {
      meta = TokenShard::open(path).meta();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      log::warn(formatted("{}; it is made again", error.what()));
      remove_tree(path);
      continue;
    }
    if (meta.identity != asked_.identity) {
      fail(ErrorKind::usage,
           "{} is of a set made otherwise{}; use another --output, or delete the folder",
           path.string(), describe_difference(meta, asked_, num_partitions_));
    }
  }
}

std::vector<std::size_t> PackFolder::all() const {
  std::vector<std::size_t> partitions(num_partitions_);
  std::iota(partitions.begin(), partitions.end(), std::size_t{0});
  return partitions;
}

std::vector<std::size_t> PackFolder::pending(const std::vector<std::size_t>& partitions) const {
  std::vector<std::size_t> without_shard;
  std::ranges::copy_if(partitions, std::back_inserter(without_shard), [&](std::size_t one) {
    return !std::filesystem::exists(path_ / schema::shard_name(one));
  });
  return without_shard;
}

}  // namespace trireme
