#include "text/pieces/unigram.hpp"

#include <algorithm>

#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr double kUnknownPenalty = 10;

std::uint64_t child_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

Unigram::Unigram(const TokenizerSpec& spec)
    : scores_(spec.pieces->scores), unk_id_(spec.pieces->unk_id.value()) {
  for (const auto& [token, id] : spec.vocab) insert(token, id);
  unknown_score_ = *std::ranges::min_element(scores_) - kUnknownPenalty;
}

void Unigram::insert(std::string_view token, std::uint32_t id) {
  if (token.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : token) {
    const auto [found, is_new] =
        children_.try_emplace(child_key(node, byte), static_cast<std::uint32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(kNoToken);
    node = found->second;
  }
  tokens_[node] = id;
}

std::uint32_t Unigram::exact(std::string_view text) const {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto found = children_.find(child_key(node, byte));
    if (found == children_.end()) return kNoToken;
    node = found->second;
  }
  return tokens_[node];
}

void Unigram::find_best(std::string_view text, std::vector<UnigramScratch::Best>& best) const {
  best.assign(text.size() + 1, {});
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += length) {
    utf8_decode(text.data() + at, length);
    const double score = best[at].score;
    const auto offer = [&](std::size_t end, std::uint32_t id, double total) {
      UnigramScratch::Best& target = best[end];
      if (target.is_set && !(total > target.score)) return;
      target = {total, id, static_cast<std::uint32_t>(at), true};
    };
    bool has_character = false;
    std::uint32_t node = 0;
    for (std::size_t end = at; end < text.size();) {
      const auto found = children_.find(child_key(node, text[end++]));
      if (found == children_.end()) break;
      node = found->second;
      if (tokens_[node] == kNoToken) continue;
      offer(end, tokens_[node], scores_[tokens_[node]] + score);
      has_character = has_character || end - at == length;
    }
    if (!has_character) offer(at + length, unk_id_, unknown_score_ + score);
  }
}

void Unigram::encode(std::string_view text,
                     const std::array<std::optional<std::uint32_t>, 256>& byte_ids,
                     UnigramScratch& scratch) const {
  find_best(text, scratch.best);
  std::vector<std::uint32_t>& ids = scratch.ids;
  ids.clear();
  // From the end to the start; `ids` is reversed at the end.
  const auto append = [&](std::string_view piece) {
    if (const std::uint32_t id = exact(piece); id != kNoToken) return ids.push_back(id);
    const bool has_bytes = std::ranges::all_of(
        piece, [&](char byte) { return byte_ids[static_cast<unsigned char>(byte)].has_value(); });
    if (!has_bytes) return ids.push_back(unk_id_);
    for (auto byte = piece.rbegin(); byte != piece.rend(); ++byte)
      ids.push_back(*byte_ids[static_cast<unsigned char>(*byte)]);
  };
  std::size_t unknown_end = 0;  // end of a run of unknown characters; 0: none
  for (std::size_t end = text.size(); end > 0;) {
    const UnigramScratch::Best& node = scratch.best[end];
    if (node.id == unk_id_) {
      if (unknown_end == 0) unknown_end = end;
    } else {
      if (unknown_end != 0) append(text.substr(end, unknown_end - end));
      unknown_end = 0;
      append(text.substr(node.begin, end - node.begin));
    }
    end = node.begin;
  }
  if (unknown_end != 0) append(text.substr(0, unknown_end));
  std::ranges::reverse(ids);
}

}  // namespace trireme::text
