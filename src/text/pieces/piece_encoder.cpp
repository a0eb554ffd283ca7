#include "text/pieces/piece_encoder.hpp"

#include <algorithm>

#include "text/unicode/normalizer.hpp"
#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t kMaxCachedIds = 255;

/// Calls `each` with the parts of `text` that a step makes at every `cut`. Empty parts are left
/// out, as in Hugging Face.
template <class Each>
void split_at(std::string_view text, std::string_view cut, PieceStep::Behavior behavior,
              const Each& each) {
  using enum PieceStep::Behavior;
  std::size_t begin = 0;  // start of the part that is not yet complete
  const auto part = [&](std::size_t from, std::size_t to) {
    if (from < to) each(text.substr(from, to - from), from == 0);
  };
  for (std::size_t at = text.find(cut); at != std::string_view::npos;) {
    const std::size_t end = at + cut.size();
    switch (behavior) {
      case isolated:
        part(begin, at);
        part(at, end);
        begin = end;
        break;
      case removed:
        part(begin, at);
        begin = end;
        break;
      case with_previous:
        part(begin, end);
        begin = end;
        break;
      case with_next:
        part(begin, at);
        begin = at;
        break;
    }
    at = text.find(cut, end);
  }
  part(begin, text.size());
}

/// Calls `each` with the words of `text`, without the white space between them.
template <class Each>
void split_at_space(std::string_view text, const Each& each) {
  std::size_t begin = 0;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += length) {
    if ((char_class(utf8_decode(text.data() + at, length)) & kSpace) == 0) continue;
    if (begin < at) each(text.substr(begin, at - begin), begin == 0);
    begin = at + length;
  }
  if (begin < text.size()) each(text.substr(begin), begin == 0);
}

bool all_set(const std::array<std::optional<std::uint32_t>, 256>& ids) {
  return std::ranges::all_of(ids, [](const auto& id) { return id.has_value(); });
}

}  // namespace

PieceEncoder::PieceEncoder(const TokenizerSpec& spec)
    : spec_(*spec.pieces), bpe_(spec), split_points_(spec) {
  if (spec_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = spec.vocab.find(byte_token_name(static_cast<std::uint8_t>(byte)));
      if (found != spec.vocab.end()) byte_ids_[static_cast<std::size_t>(byte)] = found->second;
    }
  }
  if (spec_.unigram) {
    unigram_.emplace(spec);
    return;
  }
  for (const auto& [token, id] : spec.vocab) {
    if (utf8_length(token) == 1) characters_.emplace(token, id);
  }
  const auto is_byte = [&](std::uint32_t id) { return std::ranges::count(byte_ids_, id) != 0; };
  // The split points know the characters of tokens, so no merge may join bytes.
  const bool joins_bytes =
      spec_.byte_fallback && std::ranges::any_of(spec.merges, [&](const MergeRule& rule) {
        return is_byte(rule.left) || is_byte(rule.right);
      });
  // Without an unknown token, unknown characters vanish and their neighbors may merge.
  const bool is_each_unknown = !spec_.byte_fallback && spec_.unk_id.has_value() && !spec_.fuse_unk;
  can_split_ = !joins_bytes && (all_set(byte_ids_) || is_each_unknown);
}

bool PieceEncoder::append_bytes(std::string_view character, std::vector<std::uint32_t>& ids) const {
  const auto has_token = [&](char byte) {
    return byte_ids_[static_cast<unsigned char>(byte)].has_value();
  };
  if (!spec_.byte_fallback || !std::ranges::all_of(character, has_token)) return false;
  for (const char byte : character) ids.push_back(*byte_ids_[static_cast<unsigned char>(byte)]);
  return true;
}

void PieceEncoder::read_characters(std::string_view part, std::vector<std::uint32_t>& ids) const {
  ids.clear();
  bool pending = false;  // an unknown token that waits for further unknown characters
  const auto flush = [&] {
    if (pending) ids.push_back(*spec_.unk_id);
    pending = false;
  };
  std::size_t length = 0;
  for (std::size_t at = 0; at < part.size(); at += length) {
    utf8_decode(part.data() + at, length);
    const std::string_view character = part.substr(at, length);
    if (const auto found = characters_.find(character); found != characters_.end()) {
      flush();
      ids.push_back(found->second);
      continue;
    }
    // Byte tokens go before a waiting unknown token, as in Hugging Face.
    if (append_bytes(character, ids) || !spec_.unk_id) continue;
    if (!spec_.fuse_unk) flush();
    pending = true;
  }
  flush();
}

void PieceEncoder::encode_part(std::string_view part, Output& output) const {
  std::array<std::uint32_t, kMaxCachedIds> cached;  // one id per byte at most
  const bool cacheable = part.size() <= WordCache::kMaxBytes;
  const std::size_t found = cacheable ? output.cache.find(part, cached.data()) : 0;
  if (found != 0) return output.emit(std::span(cached.data(), found));
  std::vector<std::uint32_t>& ids = unigram_ ? output.scratch.unigram.ids : output.scratch.bpe.ids;
  if (unigram_) {
    unigram_->encode(part, byte_ids_, output.scratch.unigram);
  } else {
    read_characters(part, ids);
    ids.resize(bpe_.merge_ids(output.scratch.bpe, ids.data()));
  }
  if (cacheable && !ids.empty()) output.cache.insert(part, ids);
  output.emit(ids);
}

void PieceEncoder::encode_word(std::string_view word, Output& output) const {
  if (const auto id = bpe_.whole(word)) return output.emit(std::span(&*id, 1));
  if (unigram_ || !can_split_) return encode_part(word, output);
  while (!word.empty()) {
    const std::size_t length = split_points_.part_length(word);
    encode_part(word.substr(0, length), output);
    word.remove_prefix(length);
  }
}

void PieceEncoder::encode_metaspace(std::span<const PieceStep> steps, std::string_view text,
                                    bool begins_text, Output& output) const {
  const PieceStep& step = steps.front();
  std::string replaced = with_replaced(text, " ", step.text);
  const bool prepend = step.prepend == PieceStep::Prepend::always ||
                       (step.prepend == PieceStep::Prepend::first && begins_text);
  if (prepend && !replaced.starts_with(step.text)) replaced.insert(0, step.text);
  if (!step.split) return encode_steps(steps.subspan(1), replaced, begins_text, output);
  split_at(replaced, step.text, PieceStep::Behavior::with_next,
           [&](std::string_view part, bool first) {
             encode_steps(steps.subspan(1), part, begins_text && first, output);
           });
}

void PieceEncoder::encode_steps(std::span<const PieceStep> steps, std::string_view text,
                                bool begins_text, Output& output) const {
  if (steps.empty()) return encode_word(text, output);
  const auto rest = [&](std::string_view part, bool first) {
    encode_steps(steps.subspan(1), part, begins_text && first, output);
  };
  switch (steps.front().kind) {
    case PieceStep::Kind::metaspace:
      return encode_metaspace(steps, text, begins_text, output);
    case PieceStep::Kind::whitespace_split:
      return split_at_space(text, rest);
    case PieceStep::Kind::split_text:
      return split_at(text, steps.front().text, steps.front().behavior, rest);
  }
}

void PieceEncoder::encode(std::string_view text, bool begins_text, WordCache& cache,
                          PieceScratch& scratch, const Emit& emit) const {
  Output output{cache, scratch, emit};
  encode_steps(spec_.steps, text, begins_text, output);
}

}  // namespace trireme::text
