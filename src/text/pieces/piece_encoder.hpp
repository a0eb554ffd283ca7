#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe/bpe_model.hpp"
#include "text/bpe/word_cache.hpp"
#include "text/pieces/unigram.hpp"
#include "text/spec/tokenizer_spec.hpp"

namespace trireme::text {

/// The buffers of one thread that encodes with a model of SentencePiece.
struct PieceScratch {
  BpeScratch bpe;
  UnigramScratch unigram;
};

/// Encodes the text between added tokens with a model of SentencePiece: pre-tokenizes, then applies
/// the merges (BPE) or finds the most probable tokens (Unigram). Unknown characters become byte
/// tokens or the unknown token. Immutable after construction and thread-safe; each thread needs its
/// own scratch and cache. Source: huggingface/tokenizers 0.23, `models/bpe/model.rs`,
/// `pre_tokenizers/metaspace.rs`.
class PieceEncoder {
 public:
  explicit PieceEncoder(const TokenizerSpec& spec);

  using Emit = std::function<void(std::span<const std::uint32_t> ids)>;

  /// Calls `emit` with the ids of consecutive parts of `text` (normalized, valid UTF-8).
  /// `begins_text`: the text is the start of the whole text.
  void encode(std::string_view text, bool begins_text, WordCache& cache, PieceScratch& scratch,
              const Emit& emit) const;

 private:
  struct TextHash {
    using is_transparent = void;

    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };

  struct Output {
    WordCache& cache;
    PieceScratch& scratch;
    const Emit& emit;
  };

  void encode_steps(std::span<const PieceStep> steps, std::string_view text, bool begins_text,
                    Output& output) const;
  void encode_metaspace(std::span<const PieceStep> steps, std::string_view text, bool begins_text,
                        Output& output) const;
  void encode_word(std::string_view word, Output& output) const;
  void encode_part(std::string_view part, Output& output) const;
  /// Fills `ids` with the ids of the characters of `part`.
  void read_characters(std::string_view part, std::vector<std::uint32_t>& ids) const;
  bool append_bytes(std::string_view character, std::vector<std::uint32_t>& ids) const;

  PieceSpec spec_;
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> characters_;
  std::array<std::optional<std::uint32_t>, 256> byte_ids_{};  // by byte, without byte_fallback none
  BpeModel bpe_;
  SplitPoints split_points_;
  std::optional<Unigram> unigram_;
  // Parts between safe split points may be encoded alone: no unknown tokens join across them.
  bool can_split_ = false;
};

}  // namespace trireme::text
