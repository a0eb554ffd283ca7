#include "text/encoder.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::text {
namespace {

static_assert(kPreTokenPadding >= WordCache::kPadding);

constexpr std::size_t kMaxKeptIds = std::size_t{1} << 20;

}  // namespace

std::unique_ptr<Workspace> WorkspacePool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Workspace> workspace = std::move(free_.back());
      free_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>();
}

void WorkspacePool::give_back(std::unique_ptr<Workspace> workspace) {
  if (workspace->ids.size() > kMaxKeptIds) return;  // frees the buffer of a huge text
  workspace->parts.clear();
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(workspace));
}

Encoder::Encoder(const TokenizerSpec& spec)
    : matcher_(spec.added, spec.normalizer), steps_(spec.steps) {
  if (spec.pieces) {
    pieces_.emplace(spec);
  } else {
    model_.emplace(spec);
    split_points_.emplace(spec);
  }
}

inline void Encoder::encode_merging(std::string_view part, WordCache& cache,
                                    Workspace& work) const {
  std::uint32_t* const out = work.room_for(std::max(part.size(), WordCache::kMaxShortIds));
  std::size_t count = cache.find(part, out);
  if (count == 0) {
    count = model_->merge(part, work.scratch, out);
    cache.insert(part, std::span(out, count));
  }
  work.count += count;
}

void Encoder::encode_long(std::string_view word, Workspace& work) const {
  if (const auto id = model_->whole(word)) return work.append(std::span(&*id, 1));
  // With ignore_merges, a part must not get the id that it would have as a whole pre-token.
  if (model_->has_whole() && !work.part_cache) work.part_cache.emplace();
  WordCache& cache = work.part_cache ? *work.part_cache : work.cache;
  while (!word.empty()) {
    const std::size_t length = split_points_->part_length(word);
    encode_merging(word.substr(0, length), cache, work);
    word.remove_prefix(length);
  }
}

inline void Encoder::encode_word(std::string_view word, Workspace& work) const {
  if (word.size() > WordCache::kMaxShortBytes) return encode_long(word, work);
  std::uint32_t* const out = work.room_for(std::max(word.size(), WordCache::kMaxShortIds));
  std::size_t count = work.cache.find_padded(word, out);
  if (count == 0) {
    count = model_->encode_word(word, work.scratch, out);
    work.cache.insert(word, std::span(out, count));
  }
  work.count += count;
}

void Encoder::encode_steps(std::span<const SplitStep> steps, std::string_view text,
                           Workspace& work) const {
  if (!steps.empty() && steps.front() == SplitStep::prefix_space) {
    if (!text.starts_with(' ')) {
      work.prefixed.assign(1, ' ').append(text);
      text = work.prefixed;
    }
    steps = steps.subspan(1);
  }
  if (steps.empty()) {  // one pre-token; a short one is copied so that its padding is readable
    std::array<char, WordCache::kPadding> padded{};
    if (text.size() > padded.size()) return encode_word(text, work);
    std::copy(text.begin(), text.end(), padded.begin());
    return encode_word({padded.data(), text.size()}, work);
  }
  const std::span<const SplitStep> rest = steps.subspan(1);
  if (rest.empty()) {
    split_by(steps.front(), text, [&](std::string_view word) { encode_word(word, work); });
  } else {
    split_by(steps.front(), text, [&](std::string_view word) { encode_steps(rest, word, work); });
  }
}

void Encoder::encode(std::string_view text, bool match, bool begins_text, Workspace& work) const {
  work.parts.clear();
  matcher_.split(text, match, work.parts);
  for (const TextPart& part : work.parts.list) {
    if (part.id) {
      work.append(std::span(&*part.id, 1));
    } else if (pieces_) {
      pieces_->encode(part.text, begins_text && part.begins_text, work.cache, work.piece_scratch,
                      [&work](std::span<const std::uint32_t> ids) { work.append(ids); });
    } else {
      encode_steps(steps_, part.text, work);
    }
  }
}

}  // namespace trireme::text
