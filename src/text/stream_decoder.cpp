#include <utility>

#include "text/tokenizer.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(std::uint32_t id) {
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return {};
  waiting_ += tokenizer_.token_bytes(id);
  const std::size_t ready = waiting_.size() - utf8_incomplete_tail(waiting_);
  std::string text;
  append_lossy_utf8(std::string_view(waiting_).substr(0, ready), text);
  waiting_.erase(0, ready);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_lossy_utf8(waiting_, text);
  waiting_.clear();
  return text;
}

}  // namespace trireme::text
