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

namespace trireme::text {

/// The treatment of text in a record that looks like an added token.
enum class SpecialInContent {
  text,   // plain text: a user cannot write structure
  allow,  // the token, as Hugging Face encodes a rendered chat
  error,  // the record is refused
};

/// Parses "text", "allow" or "error". Throws Error(usage) for any other name.
SpecialInContent parse_special_in_content(std::string_view name);

/// The ids of a rendered chat and their positions in its text.
///
/// Positions count half bytes: token i has the positions [place[i], place[i+1]), and 2b is the
/// boundary before byte b. A token that begins inside normalized text has an odd position, between
/// two boundaries of the template.
struct EncodedChat {
  std::vector<std::uint32_t> ids;
  std::vector<std::size_t> place{0};  // [ids + 1]
};

/// Encodes rendered chats. Text between two added tokens is encoded as a whole, whoever wrote it,
/// so that BPE sees the true neighbours. No special tokens are added. Immutable after construction
/// and thread-safe.
class ChatEncoder {
 public:
  ChatEncoder(Tokenizer tokenizer, SpecialInContent special);

  /// Fills `encoded`. With SpecialInContent::error, returns the added token that the record
  /// contains, for example "'<|im_end|>'"; none otherwise. Throws like Tokenizer::encode.
  std::optional<std::string> encode(const RenderedChat& chat, EncodedChat& encoded) const;

  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

 private:
  /// A range of the text, with the id if it is an added token.
  struct Part {
    TextRange range;
    std::optional<std::uint32_t> id;
  };

  [[nodiscard]] std::vector<Part> split(std::string_view text) const;
  /// Splits `chat` at added tokens that do not overlap any text of the record.
  [[nodiscard]] std::vector<Part> split_structure(const RenderedChat& chat) const;
  void encode_run(const RenderedChat& chat, TextRange run, EncodedChat& encoded) const;

  Tokenizer tokenizer_;
  SpecialInContent special_;
  AddedTokenMatcher matcher_;
  char blank_ = 0;  // a character that no added token contains
};

}  // namespace trireme::text
