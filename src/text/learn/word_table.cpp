#include "text/learn/word_table.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t kFirstSlots = 1 << 12;

template <class T>
std::uint64_t load(const char* p) noexcept {
  T value{};
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace

WordTable::WordTable() : slots_(kFirstSlots) {}

WordTable::Slot WordTable::short_key(std::string_view word) noexcept {
  // Overlapping loads inside the word: a copy of variable length would take longer than the lookup.
  const char* const p = word.data();
  const std::size_t n = word.size();
  Slot key{.high = std::uint64_t{n} << 56};
  if (n >= 8) {
    key.low = load<std::uint64_t>(p);
    if (n > 8) key.high |= load<std::uint64_t>(p + n - 8) >> (8 * (16 - n));
  } else if (n >= 4) {
    key.low = load<std::uint32_t>(p) | load<std::uint32_t>(p + n - 4) << (8 * (n - 4));
  } else {
    for (const std::size_t i : {std::size_t{0}, n / 2, n - 1})
      key.low |= load<std::uint8_t>(p + i) << (8 * i);
  }
  return key;
}

std::string_view WordTable::word_of(const Slot& slot, char* inline_bytes) const noexcept {
  const std::uint64_t length = slot.high >> 56;
  if (length != kLong) {
    std::memcpy(inline_bytes, &slot.low, 8);
    std::memcpy(inline_bytes + 8, &slot.high, 8);
    return {inline_bytes, length};
  }
  const char* const entry = arena_.data() + (slot.high & ~(kLong << 56));
  return {entry + 4, load<std::uint32_t>(entry)};
}

std::vector<std::size_t> WordTable::order_by_count() const {
  // Nearly all counts are small. Small counts use a counting sort, the few large ones std::sort.
  constexpr std::uint64_t kFewCounts = 1 << 12;
  std::vector<std::size_t> begin(kFewCounts + 1);
  std::vector<std::size_t> order(size_);
  std::size_t large = 0;
  for (std::size_t at = 0; at < slots_.size(); ++at) {
    if (slots_[at].high == 0) continue;
    if (slots_[at].count >= kFewCounts) {
      order[large++] = at;
    } else {
      ++begin[kFewCounts - 1 - slots_[at].count];
    }
  }
  std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(large),
            [&](auto a, auto b) { return slots_[a].count > slots_[b].count; });
  std::size_t next = large;
  for (std::size_t& bucket : begin) next += std::exchange(bucket, next);
  for (std::size_t at = 0; at < slots_.size(); ++at) {
    const Slot& slot = slots_[at];
    if (slot.high != 0 && slot.count < kFewCounts) order[begin[kFewCounts - 1 - slot.count]++] = at;
  }
  return order;
}

void WordTable::add(std::string_view word, std::uint64_t count) {
  if (word.empty()) return;
  if (word.size() > kMaxInline) return add_long(word, count);
  // The slot is prefetched now and used some words later, because a large table is not in the CPU
  // cache.
  Pending& oldest = pending_[at_];
  if (oldest.key.count != 0) apply(oldest);
  oldest.key = short_key(word);
  oldest.key.count = count;
  oldest.hash = hash_of(oldest.key);
  __builtin_prefetch(&slots_[oldest.hash & (slots_.size() - 1)], 1);
  at_ = (at_ + 1) % kAhead;
}

void WordTable::flush() {
  for (Pending& pending : pending_) {
    if (pending.key.count != 0) apply(pending);
    pending.key.count = 0;
  }
}

void WordTable::apply(const Pending& pending) {
  const std::size_t mask = slots_.size() - 1;
  const Slot& key = pending.key;
  std::size_t at = pending.hash & mask;
  while (slots_[at].high != 0) {
    if (slots_[at].low == key.low && slots_[at].high == key.high) {
      slots_[at].count += key.count;
      return;
    }
    at = (at + 1) & mask;
  }
  slots_[at] = key;
  ++size_;
  bytes_ += key.high >> 56;
  if (size_ * 5 > slots_.size() * 3) grow();
}

void WordTable::add_long(std::string_view word, std::uint64_t count) {
  if (word.size() > UINT32_MAX) {
    fail(ErrorKind::data, "A word of the training text has {} bytes. At most 2^32-1 are allowed.",
         word.size());
  }
  const std::uint64_t where = arena_.size() | kLong << 56;
  const Slot key{.low = xxh3_64(word), .high = where, .count = count};
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash_of(key) & mask;
  char inline_bytes[16];
  while (slots_[at].high != 0) {
    Slot& slot = slots_[at];
    if (slot.low == key.low && slot.high >> 56 == kLong && word_of(slot, inline_bytes) == word) {
      slot.count += count;
      return;
    }
    at = (at + 1) & mask;
  }
  const auto length = static_cast<std::uint32_t>(word.size());
  arena_.append(reinterpret_cast<const char*>(&length), sizeof length).append(word);
  slots_[at] = key;
  ++size_;
  bytes_ += word.size();
  if (size_ * 5 > slots_.size() * 3) grow();
}

void WordTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.high == 0) continue;
    std::size_t at = hash_of(slot) & mask;
    while (slots_[at].high != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

}  // namespace trireme::text
