#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme {

/// Two neighbouring ids: left << 32 | right, so that it compares as (left, right).
using IdPair = std::uint64_t;

inline IdPair id_pair(std::uint32_t left, std::uint32_t right) noexcept {
  return IdPair{left} << 32 | right;
}

/// A value for each pair: open addressing, because this look-up is much of the training time.
/// No pair of two ids 2^32-1.
template <class Value>
class IdPairTable {
 public:
  struct Slot {
    IdPair pair = kNone;
    Value value{};
  };

  IdPairTable() : slots_(1 << 12) {}

  /// Null if the pair is not there. Valid until the next operator[].
  [[nodiscard]] Value* find(IdPair pair) noexcept {
    Slot& slot = slots_[place_of(pair)];
    return slot.pair == pair ? &slot.value : nullptr;
  }

  /// The pair's value, new if it is not there. Valid until the next call.
  Value& operator[](IdPair pair) {
    std::size_t at = place_of(pair);
    if (slots_[at].pair != pair) {
      if ((size_ + 1) * 2 > slots_.size()) {
        grow();
        at = place_of(pair);
      }
      slots_[at].pair = pair;
      ++size_;
    }
    return slots_[at].value;
  }

  /// Says that find(pair) or operator[] will be called soon.
  void fetch(IdPair pair) const noexcept { __builtin_prefetch(&slots_[hash_of(pair) & mask()]); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Calls visit(pair, value) for every pair, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (Slot& slot : slots_) {
      if (slot.pair != kNone) visit(slot.pair, slot.value);
    }
  }

 private:
  static constexpr IdPair kNone = ~IdPair{0};

  static std::size_t hash_of(IdPair pair) noexcept {
    pair *= 0x9E3779B97F4A7C15ULL;
    return pair ^ pair >> 32;
  }

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }

  /// Of the pair, or the empty slot where it would be.
  [[nodiscard]] std::size_t place_of(IdPair pair) const noexcept {
    std::size_t at = hash_of(pair) & mask();
    while (slots_[at].pair != pair && slots_[at].pair != kNone) at = (at + 1) & mask();
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.pair != kNone) slots_[place_of(slot.pair)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace trireme
