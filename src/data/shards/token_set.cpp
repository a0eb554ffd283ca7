#include "data/shards/token_set.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "data/shards/schema.hpp"

namespace trireme::data {

namespace {

namespace fs = std::filesystem;

/// Throws an error that describes a path without a manifest and what to do.
[[noreturn]] void fail_no_set(const fs::path& place) {
  std::error_code code;
  if (!fs::exists(place, code)) {
    fail(ErrorKind::data, "there is no token set {}{}", place.string(),
         place.is_relative() ? formatted(" in {}", fs::current_path().string()) : "");
  }
  if (!fs::is_directory(place, code)) {
    const fs::path parent = place.parent_path();
    fail(ErrorKind::data,
         "{} is a file, but a token set is a directory that `trireme-data pack` wrote{}",
         place.string(),
         fs::exists(parent / schema::kManifest, code) ? formatted(": give {}", parent.string())
                                                      : "");
  }
  bool begun = false;
  bool has_tokenizer = false;
  for (fs::directory_iterator it(place, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    begun = begun || name.starts_with(schema::kTemporaryPrefix) || name.starts_with("shard-");
    has_tokenizer = has_tokenizer || name == schema::kTokenizerDirectory;
  }
  if (begun) {
    fail(
        ErrorKind::data,
        "{} is not a finished token set, it has no {}: run the same `trireme-data pack` again to continue it",
        place.string(), schema::kManifest);
  }
  if (has_tokenizer) {
    fail(
        ErrorKind::data,
        "{} is not a token set: it contains a tokenizer but no shard. `trireme-data pack` found no document in its inputs or ended before its first shard. Read its last message, and run pack again with inputs that contain documents",
        place.string());
  }
  fail(
      ErrorKind::data,
      "{} is not a token set, it has no {}: make a token set with `trireme-data pack --input FILE --output SET`",
      place.string(), schema::kManifest);
}

}  // namespace

TokenSet TokenSet::open(const std::filesystem::path& directory, const TokenSetOptions& options) {
  TokenSet set;
  set.directory_ = directory;
  set.options_ = options;
  const std::filesystem::path path = directory / schema::kManifest;
  if (!std::filesystem::exists(path)) fail_no_set(directory);
  set.manifest_ = Manifest::from_text(read_file(path), path);
  set.live_ = std::make_unique<Live>();
  set.live_->shards.resize(set.manifest_.shards.size());
  return set;
}

std::map<std::string, std::string> TokenSet::tokenizer_files() const {
  std::map<std::string, std::string> files;
  for (const auto& [name, hash] : manifest_.tokenizer_files) {
    const std::filesystem::path path = directory_ / schema::kTokenizerDirectory / name;
    std::string content = read_file(path);
    if (xxh3_128_hex(content) != hash) {
      fail(ErrorKind::data, "{}: damaged: checksum {}, the manifest says {}", path.string(),
           xxh3_128_hex(content), hash);
    }
    files[name] = std::move(content);
  }
  return files;
}

const TokenShard& TokenSet::shard(std::size_t index) const {
  const std::lock_guard lock(live_->mutex);
  std::unique_ptr<TokenShard>& slot = live_->shards.at(index);
  std::vector<std::size_t>& open = live_->open;
  if (!open.empty() && open.back() == index) return *slot;
  if (!slot) {
    const ShardEntry& entry = manifest_.shards[index];
    auto opened = std::make_unique<TokenShard>(TokenShard::open(directory_ / entry.file));
    if (opened->frame().xxh3 != entry.frame_xxh3 ||
        opened->frame().hdf5_bytes + kFooterBytes != entry.bytes ||
        opened->meta().counts != entry.counts || opened->meta().packs != entry.packs) {
      fail(ErrorKind::data, "{} is not the shard that {} lists (another hash)",
           opened->path().string(), schema::kManifest);
    }
    slot = std::move(opened);
  }
  open.erase(std::remove(open.begin(), open.end(), index), open.end());
  open.push_back(index);
  if (open.size() > options_.max_open_files) {
    live_->shards[open.front()]->release();
    open.erase(open.begin());
  }
  return *slot;
}

void TokenSet::verify(bool fast) const {
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    const bool known = name == schema::kManifest || name == schema::kTokenizerDirectory ||
                       name.starts_with(schema::kTemporaryPrefix) ||
                       std::any_of(manifest_.shards.begin(), manifest_.shards.end(),
                                   [&](const ShardEntry& shard) { return shard.file == name; });
    if (!known) fail(ErrorKind::data, "{} is not part of this token set", entry.path().string());
  }
  static_cast<void>(tokenizer_files());
  ShardCounts counts;
  for (std::size_t i = 0; i < num_shards(); ++i) {
    // Open it again: a shard in use was checked when it was opened, not now.
    const TokenShard fresh = TokenShard::open(directory_ / manifest_.shards[i].file);
    static_cast<void>(shard(i));
    if (!fast) fresh.verify_tokens();
    counts += fresh.meta().counts;
  }
  if (counts != manifest_.counts) {
    fail(ErrorKind::data, "{}: the counts are not the sum over the shards",
         (directory_ / schema::kManifest).string());
  }
}

void require_kind(const TokenSet& set, std::span<const std::string_view> kinds,
                  std::string_view named) {
  if (std::find(kinds.begin(), kinds.end(), set.kind()) == kinds.end()) {
    const std::string needed = joined(kinds, " or ");
    fail(ErrorKind::usage,
         "{} has kind {}, but {} is required. Give a data set that was packed with --kind {}",
         named, set.kind(), needed, needed);
  }
}

}  // namespace trireme::data
