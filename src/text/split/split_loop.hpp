#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "text/split/char_scan.hpp"

namespace trireme::text {

inline constexpr std::size_t kPreTokenPadding = 16;

template <class Pattern>
concept HasStarts = requires(const char* p) {
  Pattern::starts(p, std::size_t{1});
};

/// Calls emit(pre_token) for consecutive pre-tokens that together are `text` (valid UTF-8). A
/// pre-token is valid only during the call, and kPreTokenPadding bytes from its start are readable.
///   Pattern::pre_token_end(p, end)  end of the pre-token at `p`
///   Pattern::starts(p, left)    optional: starts of the next pre-tokens, as far as they are easy
///   to find
template <class Pattern, class Emit>
void split_by(std::string_view text, const Emit& emit) {
  constexpr std::size_t kReach = AsciiWindow::kSize + kPreTokenPadding;
  const char* p = text.data();
  const char* end = p + text.size();
  std::array<char, 2 * kReach> tail;  // copy of the last bytes with readable padding
  bool in_tail = false;
  while (p < end) {
    auto left = static_cast<std::size_t>(end - p);
    if (left < kReach && !in_tail) {
      tail.fill('\0');
      std::memcpy(tail.data(), p, left);
      p = tail.data();
      end = p + left;
      in_tail = true;
    }
    if constexpr (HasStarts<Pattern>) {
      // Text of another script begins with one of its letters, or with one symbol before it.
      if (static_cast<signed char>(p[0]) >= 0 && static_cast<signed char>(p[1]) >= 0) {
        std::uint64_t starts = Pattern::starts(p, left);
        if (starts != 0) {
          for (const char* const base = p; starts != 0; starts &= starts - 1) {
            const char* const stop = base + std::countr_zero(starts);
            emit(std::string_view(p, static_cast<std::size_t>(stop - p)));
            p = stop;
          }
          continue;
        }
      }
    }
    const char* const stop = Pattern::pre_token_end(p, end);
    emit(std::string_view(p, static_cast<std::size_t>(stop - p)));
    p = stop;
  }
}

}  // namespace trireme::text
