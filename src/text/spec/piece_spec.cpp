#include "text/spec/piece_spec.hpp"

#include "text/unicode/normalizer.hpp"

namespace trireme::text {

std::string byte_token_name(std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

std::optional<std::uint8_t> byte_of_token(const std::string& token) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<std::uint8_t>(high * 16 + low);
}

std::string piece_text(const PieceDecoder& decoder, const std::string& token) {
  std::string text = token;
  for (const auto& [from, to] : decoder.replaced) text = with_replaced(text, from, to);
  if (!decoder.metaspace.empty()) return with_replaced(text, decoder.metaspace, " ");
  const auto byte = decoder.byte_tokens ? byte_of_token(text) : std::nullopt;
  return byte ? std::string(1, static_cast<char>(*byte)) : text;
}

}  // namespace trireme::text
