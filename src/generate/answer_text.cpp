#include "generate/answer_text.hpp"

#include <algorithm>
#include <utility>

namespace trireme::generate {
namespace {

/// Returns the length of the longest suffix of `text` that is a proper prefix of `stop`.
std::size_t begun(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

AnswerText::AnswerText(const text::Tokenizer& tokenizer, std::vector<std::string> stop,
                       bool skip_special_tokens)
    // An answer continues the prompt, so a space at its start stays.
    : decoder_(tokenizer, skip_special_tokens, /*begins_text=*/false), stop_(std::move(stop)) {}

std::string AnswerText::push(std::uint32_t id) {
  if (stopped_) return {};
  waiting_ += decoder_.push(id);
  return release();
}

std::string AnswerText::release() {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stop_) first = std::min(first, waiting_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    waiting_.resize(first);
    return std::exchange(waiting_, {});
  }
  std::size_t kept = 0;
  for (const std::string& stop : stop_) kept = std::max(kept, begun(waiting_, stop));
  std::string text = waiting_.substr(0, waiting_.size() - kept);
  waiting_.erase(0, text.size());
  return text;
}

std::string AnswerText::finish() {
  if (stopped_) return {};
  waiting_ += decoder_.finish();
  std::string text = release();
  if (!stopped_) text += std::exchange(waiting_, {});
  return text;
}

}  // namespace trireme::generate
