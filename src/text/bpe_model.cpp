#include "text/bpe_model.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/error.hpp"
#include "text/byte_level.hpp"

namespace trireme {
namespace {

constexpr std::size_t kShortPiece = 48;  // above this a heap is faster than repeated scans

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

std::uint64_t pair_hash(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio: spreads low bits upward
  return key ^ key >> 32;
}

}  // namespace

BpeModel::BpeModel(const TokenizerSpec& spec) : ignore_merges_(spec.ignore_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    byte_id_[static_cast<std::size_t>(byte)] =
        spec.vocab.at(to_byte_level(std::string(1, static_cast<char>(byte))));
  }
  merges_.resize(std::bit_ceil(std::max<std::size_t>(16, spec.merges.size() * 4)));
  mask_ = merges_.size() - 1;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const MergeRule& rule = spec.merges[rank];
    // A pair listed twice keeps its last rank.
    slot(rule.left, rule.right) = {
        pair_key(rule.left, rule.right), static_cast<std::uint32_t>(rank), rule.result};
  }
  if (!ignore_merges_) return;
  for (const auto& [token, id] : spec.vocab) {
    bool whole = false;
    std::string bytes = from_byte_level(token, &whole);
    if (whole) whole_.emplace(std::move(bytes), id);
  }
}

const BpeModel::Merge& BpeModel::find(std::uint32_t left, std::uint32_t right) const noexcept {
  const std::uint64_t key = pair_key(left, right);
  std::uint64_t at = pair_hash(key) & mask_;
  while (merges_[at].pair != key && merges_[at].rank != kNone) at = (at + 1) & mask_;
  return merges_[at];
}

BpeModel::Merge& BpeModel::slot(std::uint32_t left, std::uint32_t right) noexcept {
  return const_cast<Merge&>(find(left, right));
}

void BpeModel::merge_short(BpeScratch& scratch, std::size_t& count) const {
  std::uint32_t* const ids = scratch.ids.data();
  std::uint32_t* const ranks = scratch.ranks.data();  // rank of (i, i+1)
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = find(ids[i], ids[i + 1]).rank;
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) best = ranks[i] < ranks[best] ? i : best;
    if (ranks[best] == kNone) break;
    ids[best] = find(ids[best], ids[best + 1]).result;
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    std::copy(ranks + best + 2, ranks + count, ranks + best + 1);
    --count;
    if (best > 0) ranks[best - 1] = find(ids[best - 1], ids[best]).rank;
    if (best + 1 < count) ranks[best] = find(ids[best], ids[best + 1]).rank;
  }
}

void BpeModel::merge_long(BpeScratch& scratch, std::size_t& count) const {
  auto& [ids, ranks, previous, next, heap] = scratch;
  const auto size = static_cast<std::uint32_t>(count);
  previous.resize(count);
  next.resize(count);
  heap.clear();
  // An entry is rank << 32 | position, so the smallest is the next merge; it is stale once
  // ranks[position] differs.
  const auto update = [&](std::uint32_t at) {
    ranks[at] = next[at] < size ? find(ids[at], ids[next[at]]).rank : kNone;
    if (ranks[at] == kNone) return;
    heap.push_back(pair_key(ranks[at], at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    previous[i] = i - 1;  // wraps for the first, never read
    next[i] = i + 1;
    ranks[i] = i + 1 < size ? find(ids[i], ids[i + 1]).rank : kNone;
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
  count = 0;
  for (std::uint32_t i = 0; i < size; i = next[i]) ids[count++] = ids[i];
}

void BpeModel::encode_piece(std::string_view piece,
                            BpeScratch& scratch,
                            std::vector<std::uint32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto found = whole_.find(std::string(piece)); found != whole_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  if (piece.size() >= kNone)
    fail(ErrorKind::data, "a piece of text has ", piece.size(), " bytes, at most ", kNone - 1);
  std::size_t count = piece.size();
  if (scratch.ids.size() < count) {
    scratch.ids.resize(count);
    scratch.ranks.resize(count);
  }
  for (std::size_t i = 0; i < count; ++i)
    scratch.ids[i] = byte_id_[static_cast<unsigned char>(piece[i])];
  if (count <= kShortPiece) {
    merge_short(scratch, count);
  } else {
    merge_long(scratch, count);
  }
  ids.insert(
      ids.end(), scratch.ids.begin(), scratch.ids.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace trireme
