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

namespace trireme::data {

/// One entry of the shard list of a manifest.
struct ShardEntry {
  std::string file;
  std::uint64_t bytes = 0;  // size of the file
  std::string frame_xxh3;   // hash in the footer of the shard; covers tables and chunk checksums
  ShardCounts counts;
  std::map<std::int64_t, std::uint64_t> packs;  // prepared length -> number of sequences
};

struct SourceEntry {
  std::string name;               // relative to the common directory of the inputs
  std::uint64_t size = 0;         // number of positions
  std::string fingerprint;        // hash of the first and last 64 KiB
  std::string position = "byte";  // the unit of positions: "byte" or "row"
};

/// The content of manifest.json. It is written last, so a directory with a manifest is complete.
struct Manifest {
  std::string kind;       // RecordKind::name
  std::string stored_as;  // SetContent::name of the content; "": `kind`
  std::string identity;
  std::uint64_t vocab_size = 0;
  std::optional<std::int64_t> bos_id, eos_id, pad_id;
  std::int64_t seq_len = 0;  // packing length, default length for training
  std::string tokenizer_hash;
  std::map<std::string, std::string> tokenizer_files;  // name in tokenizer/ -> XXH3-128 of the file
  std::string config_json;                             // options of pack, without paths
  std::vector<SourceEntry> sources;
  ShardCounts counts;
  std::vector<std::string> bad;  // "path:offset: reason" of the first invalid records
  IgnoredFields ignored_fields;  // stored only if not empty
  std::vector<ShardEntry> shards;
  std::string content_xxh3;   // hash of all members above: equal for equal sets
  std::string record_format;  // form of the records that were packed; "" in older sets

  /// Sets content_xxh3 and returns the text of the file. The last key is the hash of the text
  /// before it.
  [[nodiscard]] std::string to_text();

  /// Returns the description of the content of the shards.
  [[nodiscard]] const SetContent& contents() const;
  /// Returns the template of `pack --template`; "" for texts.
  [[nodiscard]] std::string chat_template() const;
  /// Returns the rule of `pack --cut-pairs`. Throws Error(data) if it is unknown.
  [[nodiscard]] PairCutRule pair_cut_rule() const;
  static Manifest from_text(std::string_view text, const std::filesystem::path& path);
};

struct TokenSetOptions {
  std::size_t max_open_files = max_open_shards();
};

/// A directory of shards, open for training. manifest.json is checked by its own hash. A shard is
/// opened at its first access and compared with the manifest. Thread-safe. Functions throw
/// Error(data) naming file and position.
class TokenSet {
 public:
  static TokenSet open(const std::filesystem::path& directory, const TokenSetOptions& options = {});

  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }

  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }

  [[nodiscard]] const std::string& kind() const noexcept { return manifest_.kind; }

  [[nodiscard]] const SetContent& contents() const { return manifest_.contents(); }

  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return manifest_.counts.tokens; }

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return manifest_.counts.documents; }

  [[nodiscard]] std::uint64_t vocab_size() const noexcept { return manifest_.vocab_size; }

  [[nodiscard]] std::optional<std::int64_t> bos_id() const noexcept { return manifest_.bos_id; }

  [[nodiscard]] std::optional<std::int64_t> eos_id() const noexcept { return manifest_.eos_id; }

  [[nodiscard]] std::optional<std::int64_t> pad_id() const noexcept { return manifest_.pad_id; }

  /// Returns the length that pack prepared.
  [[nodiscard]] std::int64_t seq_len() const noexcept { return manifest_.seq_len; }

  /// Returns a hash that is equal for equal tokens, packing and tokenizer; stored in checkpoints.
  [[nodiscard]] const std::string& content_hash() const noexcept { return manifest_.content_xxh3; }

  /// Returns the checked content of the tokenizer files (tokenizer.json, ...), by name.
  [[nodiscard]] std::map<std::string, std::string> tokenizer_files() const;

  [[nodiscard]] std::size_t num_shards() const noexcept { return manifest_.shards.size(); }

  [[nodiscard]] const TokenShard& shard(std::size_t index) const;

  /// Checks the whole directory, reading each byte once (`fast`: without the tokens). Throws
  /// Error(data) naming the first damaged file and the position.
  void verify(bool fast) const;

 private:
  struct Live {
    std::mutex mutex;
    std::vector<std::unique_ptr<TokenShard>> shards;  // null before the first access
    std::vector<std::size_t> open;  // shards that may hold a file descriptor, oldest first
  };

  TokenSet() = default;

  std::filesystem::path directory_;
  TokenSetOptions options_;
  Manifest manifest_;
  std::unique_ptr<Live> live_;
};

/// Throws Error(usage) unless the set has one of `kinds`. `named`: the user's option, "--data X".
void require_kind(const TokenSet& set, std::span<const std::string_view> kinds,
                  std::string_view named);

}  // namespace trireme::data
