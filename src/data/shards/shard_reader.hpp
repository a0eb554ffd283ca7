#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "data/shards/frame.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/set_content.hpp"
#include "data/shards/shard_meta.hpp"
#include "data/shards/targets.hpp"

namespace trireme::data {

struct Segment {
  std::uint32_t doc = 0;
  std::uint32_t begin = 0;   // first token, from the start of the document
  std::uint32_t length = 0;  // number of tokens
};

/// One preference pair of a shard without its tokens.
struct PairShape {
  std::uint32_t prompt_len = 0;  // number of tokens of the common prompt
  std::uint32_t chosen_len = 0;  // number of tokens after the prompt
  std::uint32_t rejected_len = 0;
  std::vector<Span> chosen;  // targets, from the start of the prompt
  std::vector<Span> rejected;

  [[nodiscard]] PairLengths lengths() const {
    const std::uint64_t prompt = prompt_len;
    return {prompt, prompt + chosen_len, prompt + rejected_len};
  }
};

/// One preference pair of a shard.
struct Pair {
  struct Side {
    std::vector<std::int64_t> ids;  // prompt and answer
    std::vector<Span> targets;      // positions in `ids`
  };

  std::uint32_t prompt_len = 0;  // number of tokens of the common prompt
  Side chosen;
  Side rejected;
};

/// One shard, open for reading. Opening checks the frame hash with plain reads before libhdf5 reads
/// the file. After that, tables and tokens are read with pread, and each chunk of 1 Mi tokens is
/// checked against its checksum at its first access. Memory: one bit per chunk and the requested
/// data. Thread-safe. Functions throw Error(data) naming file and position of the damage.
class TokenShard {
 public:
  static TokenShard open(const std::filesystem::path& path);

  [[nodiscard]] const ShardMeta& meta() const noexcept { return meta_; }

  [[nodiscard]] const Frame& frame() const noexcept { return frame_; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return meta_.counts.tokens; }

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return meta_.counts.documents; }

  /// Returns the lengths that `pack` prepared, ascending, with their number of sequences.
  [[nodiscard]] const std::map<std::int64_t, std::uint64_t>& prepared() const noexcept {
    return meta_.packs;
  }

  /// Reads tokens [begin, begin + ids.size()) of the shard.
  void read_tokens(std::uint64_t begin, std::span<std::int64_t> ids) const;

  /// Returns the whole document table [D+1], 8 bytes per document.
  [[nodiscard]] std::vector<std::uint64_t> document_offsets() const;
  /// Returns the first token of a document.
  [[nodiscard]] std::uint64_t document_begin(std::uint64_t doc) const;
  /// Returns for each document the number of its line, counted from the first line of its source in
  /// this shard; empty if the shard has no line numbers.
  [[nodiscard]] std::vector<std::uint32_t> document_lines() const;
  /// Returns a JSON text, see ShardContent.
  [[nodiscard]] std::string sources_json() const;
  [[nodiscard]] std::string bad_json() const;
  [[nodiscard]] std::vector<std::uint32_t> document_sources() const;
  [[nodiscard]] std::vector<std::uint64_t> document_source_offsets() const;

  [[nodiscard]] const SetContent& contents() const {
    return set_content(meta_.kind, meta_.stored_as);
  }

  /// Returns true if each document has one list of target spans: conversations.
  [[nodiscard]] bool has_spans() const { return contents().is_masked() && !contents().has_pairs(); }

  /// Returns the targets of one document or of all documents; only if has_spans().
  [[nodiscard]] std::vector<Span> target_spans(std::uint64_t doc) const;
  [[nodiscard]] SpanTable target_spans() const;

  /// Returns the entry of document `doc` in a NumberColumn of the kind.
  [[nodiscard]] std::uint32_t number(const char* column, std::uint64_t doc) const;

  /// Returns the text of document `doc` in a TextColumn of the kind.
  [[nodiscard]] std::string text(const TextColumn& column, std::uint64_t doc) const;

  /// Returns document `doc` of a shard of preference pairs.
  [[nodiscard]] Pair pair(std::uint64_t doc) const;
  [[nodiscard]] PairShape pair_shape(std::uint64_t doc) const;
  /// Returns all preference pairs without their tokens.
  [[nodiscard]] PairTable pairs() const;
  /// Like pairs, without spans: only the lengths.
  [[nodiscard]] PairTable pair_lengths() const;

  /// Read the tables that `pack` prepared for `seq_len`, which must be in prepared().
  [[nodiscard]] std::vector<Segment> segments(std::int64_t seq_len, std::uint64_t sequence) const;
  [[nodiscard]] std::uint32_t num_targets(std::int64_t seq_len, std::uint64_t sequence) const;

  /// Reads every token chunk and compares its checksum. Throws Error(data) naming the first damaged
  /// chunk.
  void verify_tokens() const;

  /// Closes the file descriptor; the next read opens it again.
  void release() const;

 private:
  struct Table {
    std::uint64_t offset = 0;  // bytes in the file
    std::uint64_t count = 0;
    DType dtype = DType::u8;
  };

  struct Live {  // state that changes while reading
    std::mutex mutex;
    Fd fd;
    std::vector<bool> checked;  // [chunks]
  };

  TokenShard() = default;
  void locate_tables();
  void check_shape() const;
  void expect_table(const std::string& name, DType dtype, std::uint64_t count) const;
  void check_target_shape() const;
  /// Reads the whole table; document d has limits[d] tokens.
  [[nodiscard]] SpanTable read_span_table(const char* ptr, const char* span,
                                          std::span<const std::uint64_t> limits) const;
  [[nodiscard]] std::vector<Span> read_spans(const char* ptr, const char* span, std::uint64_t doc,
                                             std::uint64_t limit) const;
  [[nodiscard]] int file() const;  // the caller holds live_->mutex
  void read_bytes(std::uint64_t offset, std::span<std::byte> bytes) const;
  void check_chunk(std::uint64_t chunk) const;
  [[nodiscard]] const Table& table(const std::string& name) const;
  template <class T>
  [[nodiscard]] std::vector<T> read_table(const std::string& name, std::uint64_t begin,
                                          std::uint64_t count) const;

  std::filesystem::path path_;
  Frame frame_;
  ShardMeta meta_;
  std::map<std::string, Table> tables_;
  std::unique_ptr<Live> live_;
};

}  // namespace trireme::data
