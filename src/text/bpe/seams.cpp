#include "text/bpe/seams.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "text/unicode/byte_level.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {
namespace {

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

Seams::Seams(const TokenizerSpec& spec) {
  std::vector<std::string_view> tokens(spec.vocab_size);
  for (const auto& [token, id] : spec.vocab) tokens[id] = token;
  std::vector<bool> seen(spec.vocab_size);
  std::vector<std::string> made;  // bytes of the tokens that merges can produce
  std::size_t num_bytes = 0;
  for (const MergeRule& rule : spec.merges) {
    if (seen[rule.result]) continue;
    seen[rule.result] = true;
    bool whole = false;
    std::string bytes = from_byte_level(tokens[rule.result], &whole);
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

std::uint64_t Seams::bit_of(std::uint64_t left, std::uint64_t right) const noexcept {
  return ((left * 0xC2B2AE3D27D4EB4FULL) ^ right) * 0x9E3779B97F4A7C15ULL >> shift_;
}

void Seams::set(std::string_view left, std::string_view right) {
  const std::uint64_t bit =
      bit_of(packed(left.data(), left.size()), packed(right.data(), right.size()));
  bits_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  shapes_ |= shape(left.size(), right.size());
}

void Seams::add_token(std::string_view bytes) {
  for (std::size_t at = 1; at < bytes.size(); ++at) {
    if (!begins_character(bytes[at])) continue;
    std::size_t start = at - 1;
    while (start > 0 && !begins_character(bytes[start]) && at - start < kMaxChar) --start;
    set(bytes.substr(start, at - start),
        bytes.substr(at, std::min(character_length(bytes[at]), bytes.size() - at)));
  }
}

bool Seams::joined(const char* left, std::size_t left_size, const char* right,
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

std::size_t Seams::part_length(std::string_view piece) const noexcept {
  std::size_t left = character_length(piece[0]);
  std::size_t at = left;
  while (at < piece.size()) {
    const std::size_t right = character_length(piece[at]);
    if (!joined(piece.data() + at - left, left, piece.data() + at, right)) return at;
    at += right;
    left = right;
  }
  return piece.size();
}

}  // namespace trireme
