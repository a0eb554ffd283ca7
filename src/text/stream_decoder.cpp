#include <optional>
#include <utility>

#include "text/unicode/normalizer.hpp"
#include "text/spec/piece_spec.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, bool begins_text)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      begins_text_(begins_text),
      is_first_(begins_text),
      can_cut_(begins_text) {}

/// Removes what the decoder cuts at the start of the text.
std::string StreamDecoder::without_cut(std::string text) {
  const PieceDecoder& decoder = *tokenizer_.piece_decoder();
  while (can_cut_ && !text.empty()) {
    can_cut_ = num_cut_ < decoder.max_cut && text.starts_with(decoder.cut);
    if (!can_cut_) break;
    text.erase(0, decoder.cut.size());
    ++num_cut_;
  }
  return text;
}

/// Ends a run of byte tokens.
std::string StreamDecoder::finish_bytes() {
  std::string run = std::exchange(waiting_, {});
  for (std::size_t at = 0; at < run.size();) {
    const Utf8Step step = utf8_step(run, at);
    if (!step.valid) {  // every byte of the run becomes invalid
      std::string invalid;
      for (std::size_t i = 0; i < run.size(); ++i) invalid += kReplacement;
      return invalid;
    }
    at += step.length;
  }
  return run;
}

std::string StreamDecoder::push_piece(std::uint32_t id) {
  const std::string_view piece = tokenizer_.piece(id);
  if (piece.empty()) return {};
  const PieceDecoder& decoder = *tokenizer_.piece_decoder();
  const bool is_first = std::exchange(is_first_, false);
  if (is_first && decoder.first_loses_spaces) return with_replaced(piece, decoder.metaspace, "");
  std::string token(piece);
  for (const auto& [from, to] : decoder.replaced) token = with_replaced(token, from, to);
  if (const auto byte = decoder.byte_tokens ? byte_of_token(token) : std::nullopt) {
    waiting_ += static_cast<char>(*byte);
    return {};
  }
  return without_cut(finish_bytes() + std::string(tokenizer_.token_bytes(id)));
}

std::string StreamDecoder::push(std::uint32_t id) {
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return {};
  if (tokenizer_.piece_decoder() != nullptr) return push_piece(id);
  waiting_ += tokenizer_.token_bytes(id);
  const std::size_t ready = waiting_.size() - utf8_incomplete_tail(waiting_);
  std::string text;
  append_lossy_utf8(std::string_view(waiting_).substr(0, ready), text);
  waiting_.erase(0, ready);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  if (tokenizer_.piece_decoder() != nullptr) {
    text = without_cut(finish_bytes());
    is_first_ = can_cut_ = begins_text_;
    num_cut_ = 0;
    return text;
  }
  append_lossy_utf8(waiting_, text);
  waiting_.clear();
  return text;
}

}  // namespace trireme::text
