#pragma once
#include <algorithm>
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

/// Small data sets written without a tokenizer, for tests of the reading side.
namespace trireme::testing {

class TestDirectory {
 public:
  explicit TestDirectory(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + "." + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }

  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

using Documents = std::vector<std::vector<std::uint16_t>>;

/// Returns `count` documents of 1..max_length tokens. Every token of the data set is another number
/// as long as numbers last, so that a test can see where each token went.
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

/// Converts token ids to the bytes of a shard.
inline std::vector<std::byte> token_bytes(const std::vector<std::uint16_t>& tokens) {
  const auto bytes = std::as_bytes(std::span(tokens));
  return {bytes.begin(), bytes.end()};
}

inline std::filesystem::path write_documents(const std::filesystem::path& folder,
                                             const Documents& documents, std::uint64_t index,
                                             std::uint64_t count,
                                             const std::vector<std::int64_t>& seq_lens) {
  std::vector<std::uint16_t> tokens;
  data::ShardContent content;
  for (const auto& document : documents) {
    tokens.insert(tokens.end(), document.begin(), document.end());
    content.documents.offset.push_back(tokens.size());
    content.documents.source.push_back(0);
    content.documents.source_offset.push_back(tokens.size());
    content.documents.text_xxh3.push_back(tokens.size());
  }
  content.documents.token_parts.push_back(token_bytes(tokens));
  content.meta.kind = "pretrain";
  content.meta.vocab_size = 65536;
  content.meta.identity = "test";
  content.meta.shard_index = index;
  content.meta.shard_count = count;
  content.meta.counts.documents = documents.size();
  content.meta.counts.tokens = tokens.size();
  for (const std::int64_t seq_len : seq_lens) {
    content.packs.push_back(data::pack_documents(content.documents.offset, seq_len));
    content.meta.packs[seq_len] = content.packs.back().num_sequences();
  }
  return data::write_shard(folder, content);
}

/// Returns the manifest of the shards in `folder`.
inline void write_manifest(const std::filesystem::path& folder, std::uint64_t num_shards,
                           const std::string& kind = "pretrain", std::int64_t seq_len = 16,
                           const std::string& config_json = "{}") {
  data::Manifest manifest;
  manifest.kind = kind;
  manifest.identity = "test";
  manifest.vocab_size = 65536;
  manifest.pad_id = 0;
  manifest.seq_len = seq_len;
  manifest.config_json = config_json;
  for (std::uint64_t i = 0; i < num_shards; ++i) {
    const data::TokenShard shard = data::TokenShard::open(folder / data::schema::shard_name(i));
    manifest.shards.push_back({data::schema::shard_name(i),
                               std::filesystem::file_size(shard.path()), shard.frame().xxh3,
                               shard.meta().counts, shard.meta().packs});
    manifest.counts += shard.meta().counts;
  }
  write_file_atomic(folder / data::schema::kManifest, manifest.to_text());
}

/// Writes a data set of `num_shards` shards. Its tokens are the numbers [first, first + size) in
/// order, cut into documents of 1..max_length, so a token shows its data set and position.
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

/// A document of a data set of kind sft, or a side of a preference pair, with a flag for each
/// token: true for a target.
struct MaskedTokens {
  std::vector<std::int64_t> ids;
  std::vector<bool> mask;
};

inline bool has_target(const MaskedTokens& tokens) {
  return std::find(tokens.mask.begin(), tokens.mask.end(), true) != tokens.mask.end();
}

struct MaskedPair {
  std::uint32_t prompt = 0;  // number of tokens that both sides begin with
  MaskedTokens chosen;
  MaskedTokens rejected;
};

inline std::vector<data::Span> spans_of(const std::vector<bool>& mask) {
  std::vector<data::Span> spans;
  for (std::uint32_t at = 0; at < mask.size(); ++at) {
    if (!mask[at]) continue;
    if (at == 0 || !mask[at - 1]) spans.push_back({at, at});
    spans.back().end = at + 1;
  }
  return spans;
}

/// Returns the content of a shard of `kind` without tokens, for add_document and then
/// write_masked_shard.
struct MaskedShard {
  explicit MaskedShard(const std::string& kind) { content.meta.kind = kind; }

  void add_document(const std::vector<std::int64_t>& ids) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    content.documents.offset.push_back(tokens.size());
    content.documents.source.push_back(0);
    content.documents.source_offset.push_back(0);
    content.documents.text_xxh3.push_back(0);
    ++content.meta.counts.documents;
  }

  void add(const MaskedTokens& chat) {
    add_document(chat.ids);
    content.documents.targets.loss.add(spans_of(chat.mask));
  }

  void add(const MaskedPair& pair) {
    std::vector<std::int64_t> ids = pair.chosen.ids;
    ids.insert(ids.end(), pair.rejected.ids.begin() + pair.prompt, pair.rejected.ids.end());
    add_document(ids);
    data::PairTable& pairs = content.documents.targets.pairs;
    pairs.prompt_len.push_back(pair.prompt);
    pairs.chosen_len.push_back(static_cast<std::uint32_t>(pair.chosen.ids.size()) - pair.prompt);
    pairs.rejected_len.push_back(static_cast<std::uint32_t>(pair.rejected.ids.size()) -
                                 pair.prompt);
    pairs.chosen.add(spans_of(pair.chosen.mask));
    pairs.rejected.add(spans_of(pair.rejected.mask));
  }

  void write(const std::filesystem::path& folder, std::uint64_t index, std::uint64_t count) {
    content.documents.token_parts = {token_bytes(tokens)};
    content.meta.vocab_size = 65536;
    content.meta.identity = "test";
    content.meta.shard_index = index;
    content.meta.shard_count = count;
    content.meta.counts.tokens = tokens.size();
    data::write_shard(folder, content);
  }

  std::vector<std::uint16_t> tokens;
  data::ShardContent content;
};

/// Writes a data set of these documents, shard by shard.
template <class Document>
void write_masked_set(const std::filesystem::path& folder, const std::string& kind,
                      const std::vector<std::vector<Document>>& shards, std::int64_t seq_len,
                      const std::string& config_json = "{}") {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    MaskedShard shard(kind);
    for (const Document& document : shards[i]) shard.add(document);
    shard.write(folder, i, shards.size());
  }
  write_manifest(folder, shards.size(), kind, seq_len, config_json);
}

}  // namespace trireme::testing
