#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/chat/rendered.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// What an added token's text means where a record wrote it, not the template.
enum class SpecialInContent {
  text,   // plain characters: nothing that a user writes becomes structure
  allow,  // the token, as Hugging Face encodes a rendered chat
  error,  // the record is refused
};

/// "text", "allow" or "error"; throws Error(usage) on anything else.
SpecialInContent parse_special_in_content(std::string_view name);

/// Ids of a rendered chat, and where each begins in its text.
///
/// Places are in half bytes of the rendered text: token i has the places [place[i], place[i+1]), an
/// even place 2b is the border before byte b. A token that begins inside text that a normalizer has
/// changed has an odd place, somewhere between two borders of the template.
struct EncodedChat {
  std::vector<std::uint32_t> ids;
  std::vector<std::size_t> place{0};  // [ids + 1]
};

/// Encodes rendered chats: all text between two added tokens is encoded as one, whoever wrote it,
/// so that BPE sees its true neighbours; nothing is put around it. Immutable after construction;
/// safe for any number of threads.
class ChatEncoder {
 public:
  ChatEncoder(Tokenizer tokenizer, SpecialInContent special);

  /// Fills `encoded`. Under SpecialInContent::error returns the token that a record holds, as
  /// "'<|im_end|>'"; none otherwise. Throws as Tokenizer::encode.
  std::optional<std::string> encode(const RenderedChat& chat, EncodedChat& encoded) const;

  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

 private:
  /// A part's first byte in the text, and its token.
  struct Part {
    TextRange range;
    std::optional<std::uint32_t> id;
  };

  [[nodiscard]] std::vector<Part> split(std::string_view text) const;
  /// The parts of `chat` of which no token touches what the record wrote.
  [[nodiscard]] std::vector<Part> split_structure(const RenderedChat& chat) const;
  void encode_run(const RenderedChat& chat, TextRange run, EncodedChat& encoded) const;

  Tokenizer tokenizer_;
  SpecialInContent special_;
  AddedTokenMatcher matcher_;
  char blank_ = 0;  // a character that no added token contains
};

}  // namespace trireme
