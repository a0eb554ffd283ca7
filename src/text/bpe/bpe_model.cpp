#include "text/bpe/bpe_model.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "text/unicode/byte_level.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

/// A candidate merge of a short pre-token in one number, rank before position, so that the smallest
/// number is the next merge.
constexpr int kPositionBits = 5;
constexpr std::int32_t kNoCandidate = std::numeric_limits<std::int32_t>::max();
static_assert(BpeModel::kShortWord == 1 << kPositionBits &&
              kMaxTokenId < 1 << (31 - kPositionBits));

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

std::uint64_t pair_hash(std::uint64_t key) {
  return key * 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio: spreads low bits upward
}

constexpr std::size_t kFilterBitsPerMerge = 32;  // 3 % of the pairs without a merge pass the filter

constexpr std::size_t kBitsPerPair = 64;  // one false hit in 64 if all pairs differ
constexpr std::size_t kMaxChar = 4;

std::size_t character_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Packs up to four bytes into a number. The leading 0xFF, which is not a byte of UTF-8, encodes
/// the length.
std::uint64_t packed(const char* bytes, std::size_t size) {
  std::uint64_t value = 0xFF;
  for (std::size_t i = 0; i < size; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::uint32_t shape(std::size_t left, std::size_t right) {
  return std::uint32_t{1} << ((left - 1) * kMaxChar + right - 1);
}

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec) : ignore_merges_(spec.ignore_merges) {
  merges_.resize(std::bit_ceil(std::max<std::size_t>(16, spec.merges.size() * 2)));
  mask_ = merges_.size() - 1;
  const std::size_t filter_bits =
      std::bit_ceil(std::max<std::size_t>(1024, spec.merges.size() * kFilterBitsPerMerge));
  filter_.resize(filter_bits / 64);
  filter_shift_ = 64 - std::countr_zero(filter_bits);
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const MergeRule& rule = spec.merges[rank];
    const std::uint64_t key = pair_key(rule.left, rule.right);
    const std::uint64_t hash = pair_hash(key);
    const std::uint64_t bit = hash >> filter_shift_;
    filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    // A pair listed twice keeps its last rank.
    merges_[slot_of(key, hash)] = {key, static_cast<std::uint32_t>(rank), rule.result};
  }
  if (!spec.pieces) set_bytes(spec);
  if (!ignore_merges_) return;
  for (const auto& [token, id] : spec.vocab) {
    bool whole = true;
    std::string bytes = spec.pieces ? token : from_byte_level(token, &whole);
    if (whole) whole_.emplace(std::move(bytes), id);
  }
}

void BpeModel::set_bytes(const TokenizerSpec& spec) {
  for (int byte = 0; byte < 256; ++byte) {
    byte_id_[static_cast<std::size_t>(byte)] =
        spec.vocab.at(to_byte_level(std::string(1, static_cast<char>(byte))));
  }
  byte_merges_.reserve(byte_id_.size() * byte_id_.size());
  for (const std::uint32_t left : byte_id_) {
    for (const std::uint32_t right : byte_id_) {
      const Merge& merge = find(left, right);
      byte_merges_.push_back({static_cast<std::int32_t>(merge.rank), merge.result});
    }
  }
}

inline const BpeModel::Merge& BpeModel::find(std::uint32_t left,
                                             std::uint32_t right) const noexcept {
  static constexpr Merge kAbsent;
  const std::uint64_t key = pair_key(left, right);
  const std::uint64_t hash = pair_hash(key);
  const std::uint64_t bit = hash >> filter_shift_;
  if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return kAbsent;
  return merges_[slot_of(key, hash)];
}

std::size_t BpeModel::slot_of(std::uint64_t key, std::uint64_t hash) const noexcept {
  std::uint64_t at = (hash ^ hash >> 32) & mask_;
  while (merges_[at].pair != key && merges_[at].rank != kNone) at = (at + 1) & mask_;
  return at;
}

inline const BpeModel::ByteMerge& BpeModel::byte_merge(char left, char right) const noexcept {
  return byte_merges_[static_cast<std::size_t>(static_cast<unsigned char>(left)) << 8 |
                      static_cast<unsigned char>(right)];
}

std::size_t BpeModel::merge_short(std::string_view word, std::uint32_t* out) const {
  // Merged symbols stay in place and are skipped by `next`. The scan over plain numbers vectorizes.
  std::array<std::int32_t, kShortWord> candidates;
  std::array<std::uint32_t, kShortWord> ids;
  std::array<std::uint32_t, kShortWord> results;  // id after the merge
  std::array<std::uint8_t, kShortWord> previous;
  std::array<std::uint8_t, kShortWord> next;
  const std::size_t size = word.size();
  const auto candidate = [](std::int32_t rank, std::size_t at) {
    return rank < 0 ? kNoCandidate : rank << kPositionBits | static_cast<std::int32_t>(at);
  };
  for (std::size_t i = 0; i < size; ++i) {
    ids[i] = byte_id_[static_cast<unsigned char>(word[i])];
    candidates[i] = kNoCandidate;
    if (i + 1 < size) {
      const ByteMerge& merge = byte_merge(word[i], word[i + 1]);
      candidates[i] = candidate(merge.rank, i);
      results[i] = merge.result;
    }
    previous[i] = static_cast<std::uint8_t>(i - 1);
    next[i] = static_cast<std::uint8_t>(i + 1);
  }
  const auto update = [&](std::size_t at) {
    candidates[at] = kNoCandidate;
    if (next[at] >= size) return;
    const Merge& merge = find(ids[at], ids[next[at]]);
    candidates[at] = candidate(static_cast<std::int32_t>(merge.rank), at);
    results[at] = merge.result;
  };
  while (true) {
    std::int32_t best = kNoCandidate;
    for (std::size_t i = 0; i < size; ++i) best = candidates[i] < best ? candidates[i] : best;
    if (best == kNoCandidate) break;
    const std::size_t at = static_cast<std::size_t>(best) & (kShortWord - 1);
    const std::size_t eaten = next[at];
    ids[at] = results[at];
    candidates[eaten] = kNoCandidate;
    next[at] = next[eaten];
    if (next[at] < size) previous[next[at]] = static_cast<std::uint8_t>(at);
    update(at);
    if (at > 0) update(previous[at]);
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; i = next[i]) out[count++] = ids[i];
  return count;
}

std::size_t BpeModel::merge_long(std::string_view word, BpeScratch& scratch,
                                 std::uint32_t* out) const {
  const auto size = static_cast<std::uint32_t>(word.size());
  scratch.ids.resize(size);
  scratch.ranks.resize(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    scratch.ids[i] = byte_id_[static_cast<unsigned char>(word[i])];
    scratch.ranks[i] =
        i + 1 < size ? static_cast<std::uint32_t>(byte_merge(word[i], word[i + 1]).rank) : kNone;
  }
  return merge_ranked(scratch, out);
}

std::size_t BpeModel::merge_ids(BpeScratch& scratch, std::uint32_t* out) const {
  const std::size_t size = scratch.ids.size();
  scratch.ranks.assign(size, kNone);
  for (std::size_t i = 0; i + 1 < size; ++i)
    scratch.ranks[i] = find(scratch.ids[i], scratch.ids[i + 1]).rank;
  return merge_ranked(scratch, out);
}

std::size_t BpeModel::merge_ranked(BpeScratch& scratch, std::uint32_t* out) const {
  auto& ids = scratch.ids;
  auto& ranks = scratch.ranks;
  auto& previous = scratch.previous;
  auto& next = scratch.next;
  auto& heap = scratch.heap;
  const auto size = static_cast<std::uint32_t>(ids.size());
  for (auto* values : {&previous, &next}) values->resize(size);
  heap.clear();
  // An entry is rank << 32 | position, so the smallest entry is the next merge. It is stale if
  // ranks[position] differs.
  const auto update = [&](std::uint32_t at) {
    ranks[at] = next[at] < size ? find(ids[at], ids[next[at]]).rank : kNone;
    if (ranks[at] == kNone) return;
    heap.push_back(pair_key(ranks[at], at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    previous[i] = i - 1;  // wraps around for the first position, which is never read
    next[i] = i + 1;
    if (ranks[i] != kNone) heap.push_back(pair_key(ranks[i], i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    if (ranks[at] != top >> 32) continue;
    const std::uint32_t eaten = next[at];
    ids[at] = find(ids[at], ids[eaten]).result;
    ranks[eaten] = kNone;
    next[at] = next[eaten];
    if (next[at] < size) previous[next[at]] = at;
    update(at);
    if (at > 0) update(previous[at]);
  }
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < size; i = next[i]) out[count++] = ids[i];
  return count;
}

std::optional<std::uint32_t> BpeModel::whole(std::string_view word) const {
  if (!ignore_merges_) return std::nullopt;
  const auto found = whole_.find(word);
  return found == whole_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t BpeModel::merge(std::string_view word, BpeScratch& scratch, std::uint32_t* out) const {
  return word.size() <= kShortWord ? merge_short(word, out) : merge_long(word, scratch, out);
}

std::size_t BpeModel::encode_word(std::string_view word, BpeScratch& scratch,
                                  std::uint32_t* out) const {
  if (const auto id = whole(word)) {
    *out = *id;
    return 1;
  }
  return merge(word, scratch, out);
}

SplitPoints::SplitPoints(const TokenizerSpec& spec) {
  std::vector<std::string_view> tokens(spec.vocab_size);
  for (const auto& [token, id] : spec.vocab) tokens[id] = token;
  std::vector<bool> seen(spec.vocab_size);
  std::vector<std::string> made;  // bytes of the tokens that merges can produce
  std::size_t num_bytes = 0;
  for (const MergeRule& rule : spec.merges) {
    if (seen[rule.result]) continue;
    seen[rule.result] = true;
    bool whole = true;
    std::string bytes = spec.pieces ? std::string(tokens[rule.result])
                                    : from_byte_level(tokens[rule.result], &whole);
    if (!whole) continue;  // The token is not a sequence of bytes, so merges cannot produce it.
    num_bytes += bytes.size();
    made.push_back(std::move(bytes));
  }
  const std::size_t num_bits =
      std::bit_ceil(std::max<std::size_t>(4096, num_bytes * kBitsPerPair / 8));
  bits_.resize(num_bits / 64);
  shift_ = 64 - std::countr_zero(num_bits);
  for (const std::string& bytes : made) add_token(bytes);
}

std::uint64_t SplitPoints::bit_of(std::uint64_t left, std::uint64_t right) const noexcept {
  return ((left * 0xC2B2AE3D27D4EB4FULL) ^ right) * 0x9E3779B97F4A7C15ULL >> shift_;
}

void SplitPoints::set(std::string_view left, std::string_view right) {
  const std::uint64_t bit =
      bit_of(packed(left.data(), left.size()), packed(right.data(), right.size()));
  bits_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  shapes_ |= shape(left.size(), right.size());
}

void SplitPoints::add_token(std::string_view bytes) {
  for (std::size_t at = 1; at < bytes.size(); ++at) {
    if (!begins_character(bytes[at])) continue;
    std::size_t start = at - 1;
    while (start > 0 && !begins_character(bytes[start]) && at - start < kMaxChar) --start;
    set(bytes.substr(start, at - start),
        bytes.substr(at, std::min(character_length(bytes[at]), bytes.size() - at)));
  }
}

bool SplitPoints::joined(const char* left, std::size_t left_size, const char* right,
                         std::size_t right_size) const noexcept {
  for (std::size_t i = left_size; i > 0; --i) {
    const std::uint64_t tail = packed(left + left_size - i, i);
    for (std::size_t j = right_size; j > 0; --j) {
      if ((shapes_ & shape(i, j)) == 0) continue;
      const std::uint64_t bit = bit_of(tail, packed(right, j));
      if ((bits_[bit / 64] >> (bit % 64) & 1) != 0) return true;
    }
  }
  return false;
}

std::size_t SplitPoints::part_length(std::string_view word) const noexcept {
  std::size_t left = character_length(word[0]);
  std::size_t at = left;
  while (at < word.size()) {
    const std::size_t right = character_length(word[at]);
    if (!joined(word.data() + at - left, left, word.data() + at, right)) return at;
    at += right;
    left = right;
  }
  return word.size();
}

}  // namespace trireme::text
