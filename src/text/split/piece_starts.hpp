#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "text/split/ascii_window.hpp"
#include "text/split/char_scan.hpp"

/// Where pieces begin in the next 64 bytes, without a branch for each: the fast path of the
/// splitters. What a pattern says about ASCII depends on neighbours, so it is a few operations on
/// masks; whatever does not (another script, white space that goes on, the last bytes) is left to
/// `piece_end`, which is the definition.
namespace trireme::scan {

/// The classes of a window as masks, and how far it is ASCII.
struct Masks {
  const char* p;
  AsciiWindow window;
  std::size_t size;  // bytes before the end of the text or of ASCII
  std::uint64_t letters;
  std::uint64_t numbers;
  std::uint64_t spaces;
  std::uint64_t symbols;
  std::uint64_t blanks;  // U+0020

  /// `p` has a whole window of readable bytes, of which `left` are text.
  Masks(const char* at, std::size_t left) noexcept
      : p(at),
        window(at),
        size(left < AsciiWindow::kSize ? left : AsciiWindow::kSize),
        letters(window.letters()),
        numbers(window.between('0', '9')),
        blanks(window.equal(' ')) {
    if (const std::uint64_t other = window.past_ascii(); other != 0) {
      const auto ascii = static_cast<std::size_t>(std::countr_zero(other));
      if (ascii < size) size = ascii;
    }
    spaces = blanks | window.between('\t', '\r');
    symbols = ~(letters | numbers | spaces) & low_bits(size);
  }

  static std::uint64_t low_bits(std::size_t count) noexcept {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  }

  /// Starts after the first byte that are certain, if all up to byte `last` are.
  static std::uint64_t up_to(std::size_t last, std::uint64_t starts) noexcept {
    return starts & low_bits(last + 1) & ~std::uint64_t{1};
  }
};

/// A contraction has up to three bytes, so that many must be known behind a start.
inline constexpr std::size_t kLookAhead = 3;

/// Moves the start behind the apostrophe `at` to the end of its contraction of `length` bytes.
inline std::uint64_t pass_contraction(std::uint64_t starts, std::size_t at,
                                      std::size_t length) noexcept {
  const std::uint64_t inside = Masks::low_bits(length - 1) << (at + 1);
  return (starts & ~inside) | std::uint64_t{1} << (at + length);
}

}  // namespace trireme::scan
