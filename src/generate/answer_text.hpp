#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace trireme::generate {

/// Converts generated tokens to text that can be shown to the user. Returns only complete
/// characters. Holds back a suffix that may be the beginning of a stop string. The concatenation of
/// all results is the text before the first stop string.
class AnswerText {
 public:
  AnswerText(const text::Tokenizer& tokenizer, std::vector<std::string> stop,
             bool skip_special_tokens);

  /// Adds a token. Returns the new text that can be shown.
  std::string push(std::uint32_t id);

  /// Returns the text that was held back. Called after the last token.
  std::string finish();

  /// Returns true if a stop string was found. No more text follows.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  /// Removes the text that can be shown from `waiting_` and returns it.
  std::string release();

  text::StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace trireme::generate
