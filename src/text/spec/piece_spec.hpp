#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The parts of tokenizer.json that only models of SentencePiece have: their tokens are texts, in
/// which U+2581 stands for a space, and not sequences of bytes.
namespace trireme::text {

/// One step of the pre-tokenizer. A step splits the results of the step before.
struct PieceStep {
  enum class Kind : std::uint8_t {
    metaspace,         // replaces spaces, may add a space at the start, may split at spaces
    whitespace_split,  // splits at white space and removes it
    split_text,        // splits at a text
  };
  enum class Prepend : std::uint8_t { always, first, never };
  enum class Behavior : std::uint8_t { isolated, removed, with_previous, with_next };

  Kind kind = Kind::metaspace;
  std::string text = {};  // the character that stands for a space, or the text to split at
  Prepend prepend = Prepend::always;  // metaspace
  bool split = true;                  // metaspace
  Behavior behavior = Behavior::removed;
};

/// The steps from tokens to text, in the only order that is supported: replacements, byte tokens,
/// and either the rule of Metaspace or a cut at the start of the whole text.
struct PieceDecoder {
  std::vector<std::pair<std::string, std::string>> replaced;
  bool byte_tokens = false;    // <0x0A> stands for a byte
  std::string metaspace = {};  // the character that becomes a space; empty: no Metaspace
  // With Metaspace, the first token loses its spaces instead of showing them.
  bool first_loses_spaces = false;
  std::string cut = {};     // this character is removed at the start of the text ...
  std::size_t max_cut = 0;  // ... at most this many times
};

struct PieceSpec {
  bool unigram = false;        // the most probable tokens; otherwise merges (BPE)
  std::vector<double> scores;  // [vocab] logarithms of probabilities, for unigram
  bool byte_fallback = false;  // the bytes of an unknown character become byte tokens
  bool fuse_unk = false;       // adjacent unknown characters become one unknown token
  std::optional<std::uint32_t> unk_id;
  std::vector<PieceStep> steps;
  PieceDecoder decoder;
};

/// Returns the bytes that a token has inside a text.
std::string piece_text(const PieceDecoder& decoder, const std::string& token);

/// Returns the name of the token that stands for `byte`: "<0x0A>".
std::string byte_token_name(std::uint8_t byte);

/// Returns the byte that a token stands for; none for other tokens.
std::optional<std::uint8_t> byte_of_token(const std::string& token);

}  // namespace trireme::text
