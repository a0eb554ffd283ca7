#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/bpe/bpe_model.hpp"
#include "text/bpe/word_cache.hpp"
#include "text/pieces/piece_encoder.hpp"
#include "text/spec/tokenizer_spec.hpp"

namespace trireme::text {

/// The buffers of one call of encode, reused by later calls.
struct Workspace {
  WordCache cache;
  std::optional<WordCache> part_cache;  // for parts, if whole pre-tokens have other ids
  BpeScratch scratch;
  PieceScratch piece_scratch;
  TextParts parts;
  std::string prefixed;
  std::vector<std::uint32_t> ids;  // the result so far; longer than `count`
  std::size_t count = 0;

  /// Returns the position of the next ids, with space for `more` ids.
  std::uint32_t* room_for(std::size_t more) {
    if (ids.size() - count < more) ids.resize(std::max(ids.size() * 2, count + more));
    return ids.data() + count;
  }

  void append(std::span<const std::uint32_t> more) {
    std::copy(more.begin(), more.end(), room_for(more.size()));
    count += more.size();
  }
};

/// Lends a workspace to each thread that encodes at the same time.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take();
  void give_back(std::unique_ptr<Workspace> workspace);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

/// Converts text to ids: splits at added tokens, normalizes, pre-tokenizes, then uses the word
/// cache or the merges. Thread-safe if each thread has its own workspace.
class Encoder {
 public:
  explicit Encoder(const TokenizerSpec& spec);

  /// Appends the ids of `text` (valid UTF-8, fewer than 2^32 - 1 bytes) to `work`. `match`:
  /// recognize added tokens in the text. `begins_text`: `text` is the start of the whole text.
  void encode(std::string_view text, bool match, bool begins_text, Workspace& work) const;

 private:
  void encode_word(std::string_view word, Workspace& work) const;
  void encode_long(std::string_view word, Workspace& work) const;
  void encode_merging(std::string_view part, WordCache& cache, Workspace& work) const;
  void encode_steps(std::span<const SplitStep> steps, std::string_view text, Workspace& work) const;

  AddedTokenMatcher matcher_;
  // Exactly one of the two kinds of models is set.
  std::optional<PieceEncoder> pieces_;
  std::optional<BpeModel> model_;
  std::optional<SplitPoints> split_points_;
  std::vector<SplitStep> steps_;
};

}  // namespace trireme::text
