#include "data/shards/staged_set.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/refusal.hpp"
#include "core/process/stop_signals.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStaged = "trireme-staged";
constexpr const char* kLock = ".lock";
constexpr const char* kPart = ".part";
constexpr std::chrono::milliseconds kLookAgain{50};
constexpr std::uint64_t kSpareBytes = std::uint64_t{64} << 20;  // bytes to keep free

fs::path with_suffix(fs::path path, const char* suffix) {
  path += suffix;
  return path;
}

Fd open_lock(const fs::path& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) fail_to_write("open", path, errno);
  return fd;
}

/// Returns true if the lock file still has a name. If another process deleted the lock file
/// together with the copy, the lock is not valid.
bool has_name(const Fd& fd) {
  struct stat status {};

  return ::fstat(fd.get(), &status) == 0 && status.st_nlink > 0;
}

/// Deletes the copy. The caller holds the exclusive lock. Ignores errors: a later process tries
/// again.
void delete_files(const fs::path& copy) {
  std::error_code code;
  fs::remove_all(copy, code);
  fs::remove_all(with_suffix(copy, kPart), code);
}

void delete_copy(const fs::path& copy) {
  delete_files(copy);
  std::error_code code;
  fs::remove(with_suffix(copy, kLock), code);
}

/// Deletes unused copies of other sets.
void clear_others(const fs::path& copy) {
  std::error_code code;
  for (fs::directory_iterator it(copy.parent_path(), code), end; !code && it != end;
       it.increment(code)) {
    const fs::path path = it->path();
    if (path.extension() != kLock || path.stem() == copy.filename()) continue;
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && has_name(fd))
      delete_copy(path.parent_path() / path.stem());
  }
}

bool is_whole(const fs::path& copy) {
  try {
    TokenSet::open(copy).verify(/*fast=*/false);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void check_room(const TokenSet& set, const fs::path& place) {
  std::uint64_t bytes = 0;
  for (const ShardEntry& shard : set.manifest().shards) bytes += shard.bytes;
  std::error_code code;
  const fs::space_info space = fs::space(place, code);
  if (code || space.available >= bytes + kSpareBytes) return;
  fail(
      ErrorKind::resource,
      "data.stage: {} needs {} MB, but {} has {} MB free: name another directory, or omit data.stage",
      set.directory().string(), bytes / 1000000, place.string(), space.available / 1000000);
}

void copy_set(const TokenSet& set, const fs::path& target) {
  const auto copy = [&](const fs::path& name) {
    throw_if_stop_requested();
    std::error_code code;
    fs::copy_file(set.directory() / name, target / name, code);
    if (!code) return;
    if (!fs::exists(set.directory() / name))
      fail(ErrorKind::data, "{} no longer exists", (set.directory() / name).string());
    fail_to_write("copy to", target / name, code.value());
  };
  make_directories(target / schema::kTokenizerDirectory);
  for (const auto& [name, hash] : set.manifest().tokenizer_files)
    copy(fs::path(schema::kTokenizerDirectory) / name);
  for (const ShardEntry& shard : set.manifest().shards) copy(shard.file);
  copy(schema::kManifest);
}

/// Makes the copy unless it is complete; returns true if it was made. The caller holds the
/// exclusive lock.
bool make_copy(const TokenSet& set, const fs::path& copy) {
  if (is_whole(copy)) return false;
  delete_files(copy);
  check_room(set, copy.parent_path());
  const fs::path part = with_suffix(copy, kPart);
  try {
    copy_set(set, part);
    TokenSet::open(part).verify(/*fast=*/false);
    publish(part, copy);
  } catch (...) {
    delete_copy(copy);
    throw;
  }
  return true;
}

}  // namespace

bool StagedSet::take_lock(int kind) {
  if (!lock_ || !has_name(lock_)) lock_ = open_lock(with_suffix(directory_, kLock));
  return ::flock(lock_.get(), kind | LOCK_NB) == 0 && has_name(lock_);
}

StagedSet::StagedSet(const fs::path& set, const fs::path& place) {
  const TokenSet source = TokenSet::open(set);
  make_directories(place / kStaged);
  directory_ = place / kStaged / source.content_hash();
  clear_others(directory_);
  while (true) {
    throw_if_stop_requested();
    if (take_lock(LOCK_EX)) made_ = make_copy(source, directory_) || made_;
    // If another process deletes the copy between the two locks, the next iteration makes the copy
    // again.
    std::error_code code;
    if (take_lock(LOCK_SH) && fs::exists(directory_ / schema::kManifest, code)) return;
    std::this_thread::sleep_for(kLookAgain);
  }
}

StagedSet::~StagedSet() {
  try {
    if (take_lock(LOCK_EX)) delete_copy(directory_);
  } catch (const Error&) {  // the directory no longer exists
  }
}

}  // namespace trireme::data
