#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace trireme {

/// Drawn tokens as text that may be shown: characters are whole, and what may yet turn out to be a
/// stop string waits. All pieces joined are the text up to the first stop string.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stop, bool skip_special_tokens);

  /// The text that became certain with `id`.
  std::string push(std::uint32_t id);

  /// What still waited; call where no token follows.
  std::string finish();

  /// A stop string was found: nothing comes any more.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  /// Takes from `waiting_` what can be shown.
  std::string release();

  StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace trireme
