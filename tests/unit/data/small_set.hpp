#pragma once
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/shard_writer.hpp"
#include "data/shards/token_set.hpp"

/// Small token sets written without any tokenizer, for tests of the reading side.
namespace trireme::testing {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "." + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }

  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

using Documents = std::vector<std::vector<std::uint16_t>>;

/// `count` documents of 1..max_length tokens; every token of the set is another number while they
/// last, so that a test can see where each one went.
inline Documents numbered_documents(std::size_t count, int max_length, unsigned seed) {
  std::mt19937 random(seed);
  std::uint16_t next = 0;
  Documents documents(count);
  for (auto& document : documents) {
    document.resize(1 + random() % static_cast<unsigned>(max_length));
    for (auto& token : document) token = next++;
  }
  return documents;
}

inline std::filesystem::path write_documents(const std::filesystem::path& folder,
                                             const Documents& documents, std::uint64_t index,
                                             std::uint64_t count,
                                             const std::vector<std::int64_t>& seq_lens) {
  std::vector<std::uint16_t> tokens;
  ShardContent content;
  for (const auto& document : documents) {
    tokens.insert(tokens.end(), document.begin(), document.end());
    content.documents.offset.push_back(tokens.size());
    content.documents.source.push_back(0);
    content.documents.source_offset.push_back(tokens.size());
    content.documents.text_xxh3.push_back(tokens.size());
  }
  content.token_parts.push_back(std::as_bytes(std::span(tokens)));
  content.meta.kind = "pretrain";
  content.meta.vocab_size = 65536;
  content.meta.identity = "test";
  content.meta.shard_index = index;
  content.meta.shard_count = count;
  content.meta.counts.documents = documents.size();
  content.meta.counts.tokens = tokens.size();
  for (const std::int64_t seq_len : seq_lens) {
    content.packs.push_back(pack_documents(content.documents.offset, seq_len));
    content.meta.packs[seq_len] = content.packs.back().num_sequences();
  }
  return write_shard(folder, content);
}

/// The manifest of the shards that lie in `folder`.
inline void write_manifest(const std::filesystem::path& folder, std::uint64_t num_shards) {
  Manifest manifest;
  manifest.kind = "pretrain";
  manifest.identity = "test";
  manifest.vocab_size = 65536;
  manifest.pad_id = 0;
  manifest.seq_len = 16;
  manifest.config_json = "{}";
  for (std::uint64_t i = 0; i < num_shards; ++i) {
    const TokenShard shard = TokenShard::open(folder / schema::shard_name(i));
    manifest.shards.push_back({schema::shard_name(i), std::filesystem::file_size(shard.path()),
                               shard.frame().xxh3, shard.meta().counts, shard.meta().packs});
    manifest.counts += shard.meta().counts;
  }
  write_file_atomic(folder / schema::kManifest, manifest.to_text());
}

/// A set of `num_shards` shards whose tokens are the numbers [first, first + size) in order, cut
/// into documents of 1..max_length: a token tells the set and the place it is from.
inline void write_numbered_set(const std::filesystem::path& folder, std::uint16_t first,
                               std::uint16_t size, int max_length, std::uint64_t num_shards,
                               const std::vector<std::int64_t>& seq_lens) {
  std::filesystem::create_directories(folder);
  std::mt19937 random(first);
  std::uint32_t next = first;
  for (std::uint64_t shard = 0; shard < num_shards; ++shard) {
    const std::uint32_t end = first + static_cast<std::uint32_t>(size * (shard + 1) / num_shards);
    Documents documents;
    while (next < end) {
      const auto drawn = 1 + random() % static_cast<unsigned>(max_length);
      const auto length = std::min(static_cast<std::uint32_t>(drawn), end - next);
      auto& document = documents.emplace_back();
      for (std::uint32_t i = 0; i < length; ++i)
        document.push_back(static_cast<std::uint16_t>(next++));
    }
    write_documents(folder, documents, shard, num_shards, seq_lens);
  }
  write_manifest(folder, num_shards);
}

}  // namespace trireme::testing
