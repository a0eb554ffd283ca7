#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/process/open_files.hpp"
#include "data/shards/shard_reader.hpp"

namespace trireme {

/// One line of a manifest's shard list.
struct ShardEntry {
  std::string file;
  std::uint64_t bytes = 0;  // of the file
  std::string
      frame_xxh3;  // its footer's hash: covers tables and chunk checksums, so all of the shard
  ShardCounts counts;
  std::map<std::int64_t, std::uint64_t> packs;  // prepared length -> sequences
};

struct SourceEntry {
  std::string name;  // relative to the inputs' common folder
  std::uint64_t size = 0;
  std::string fingerprint;  // hash of its first and last 64 KiB
};

/// manifest.json: written last, so a folder that has one is complete.
struct Manifest {
  std::string kind;
  std::string identity;
  std::uint64_t vocab_size = 0;
  std::optional<std::int64_t> bos_id, eos_id, pad_id;
  std::int64_t seq_len = 0;  // the packing length, default for training
  std::string tokenizer_hash;
  std::map<std::string, std::string>
      tokenizer_files;      // name in tokenizer/ -> XXH3-128 of its bytes
  std::string config_json;  // what pack was asked for, without paths
  std::vector<SourceEntry> sources;
  ShardCounts counts;
  std::vector<std::string> bad;  // "path:offset: reason" of the first bad lines
  IgnoredFields ignored_fields;  // stored where there are some
  std::vector<ShardEntry> shards;
  std::string content_xxh3;  // of everything above: equal for equal sets, wherever they lie

  /// Fills content_xxh3 and renders the file; the last key is the hash of all that is before it.
  [[nodiscard]] std::string to_text();

  /// The name that `pack --template` was given; "" for texts.
  [[nodiscard]] std::string chat_template() const;
  /// The rule of `pack --cut-pairs` that the set was made with. Throws Error(data) if it is unknown.
  [[nodiscard]] PairCutRule pair_cut_rule() const;
  static Manifest from_text(std::string_view text, const std::filesystem::path& path);
};

struct TokenSetOptions {
  std::size_t max_open_files = max_open_shards();
};

/// A folder of shards, open for training: manifest.json checked by its own hash, shards opened when
/// first touched and checked against it. Functions may be called from several threads. Throw
/// Error(data) naming file and place.
class TokenSet {
 public:
  static TokenSet open(const std::filesystem::path& folder, const TokenSetOptions& options = {});

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }

  [[nodiscard]] const std::string& kind() const noexcept { return manifest_.kind; }

  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return manifest_.counts.tokens; }

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return manifest_.counts.documents; }

  [[nodiscard]] std::uint64_t vocab_size() const noexcept { return manifest_.vocab_size; }

  [[nodiscard]] std::optional<std::int64_t> bos_id() const noexcept { return manifest_.bos_id; }

  [[nodiscard]] std::optional<std::int64_t> eos_id() const noexcept { return manifest_.eos_id; }

  [[nodiscard]] std::optional<std::int64_t> pad_id() const noexcept { return manifest_.pad_id; }

  /// The length that pack prepared.
  [[nodiscard]] std::int64_t seq_len() const noexcept { return manifest_.seq_len; }

  /// Equal for sets with equal tokens, packing and tokenizer; goes into checkpoints.
  [[nodiscard]] const std::string& content_hash() const noexcept { return manifest_.content_xxh3; }

  /// Name -> content of the tokenizer's files (tokenizer.json, ...), hash-checked.
  [[nodiscard]] std::map<std::string, std::string> tokenizer_files() const;

  [[nodiscard]] std::size_t num_shards() const noexcept { return manifest_.shards.size(); }

  [[nodiscard]] const TokenShard& shard(std::size_t index) const;

  /// Checks everything the folder holds, reading each byte once (`fast`: all but the tokens).
  /// Throws Error(data) naming the first damaged file and the place in it.
  void verify(bool fast) const;

 private:
  struct Live {
    std::mutex mutex;
    std::vector<std::unique_ptr<TokenShard>> shards;  // null until first touched
    std::vector<std::size_t> open;  // shards that may hold a file descriptor, oldest first
  };

  TokenSet() = default;

  std::filesystem::path folder_;
  TokenSetOptions options_;
  Manifest manifest_;
  std::unique_ptr<Live> live_;
};

/// Throws Error(usage) unless the set is of one of `kinds`; `named`: what the user gave, "--data X".
void require_kind(const TokenSet& set, std::span<const std::string_view> kinds,
                  std::string_view named);

}  // namespace trireme
