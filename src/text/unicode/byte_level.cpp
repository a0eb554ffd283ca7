#include "text/unicode/byte_level.hpp"

#include <array>

#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr std::uint32_t kNumChars = 0x144;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Maps {
  std::array<std::uint16_t, 256> to_char{};
  std::array<std::int16_t, kNumChars> to_byte{};
};

constexpr Maps make_maps() {
  Maps maps;
  for (auto& byte : maps.to_byte) byte = -1;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned code_point = stands_for_itself(byte) ? byte : next++;
    maps.to_char[byte] = static_cast<std::uint16_t>(code_point);
    maps.to_byte[code_point] = static_cast<std::int16_t>(byte);
  }
  return maps;
}

constexpr Maps kMaps = make_maps();
static_assert(kMaps.to_char[' '] == 0x120 && kMaps.to_char['\n'] == 0x10A &&
              kMaps.to_char[0xAD] == 0x143);

}  // namespace

std::uint32_t byte_level_char(std::uint8_t byte) noexcept {
  return kMaps.to_char[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const std::uint32_t code_point = byte_level_char(static_cast<std::uint8_t>(c));
    if (code_point < 0x80) {
      out.push_back(static_cast<char>(code_point));
    } else {
      out.push_back(static_cast<char>(0xC0 | code_point >> 6));
      out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
    }
  }
  return out;
}

std::string from_byte_level(std::string_view token, bool* whole) {
  std::string bytes;
  bytes.reserve(token.size());
  if (whole != nullptr) *whole = true;
  for (std::size_t position = 0; position < token.size();) {
    std::size_t length = 0;
    const std::uint32_t code_point = utf8_decode(token.data() + position, length);
    if (code_point >= kNumChars || kMaps.to_byte[code_point] < 0) {
      if (whole != nullptr) *whole = false;
      return std::string(token);
    }
    bytes.push_back(static_cast<char>(kMaps.to_byte[code_point]));
    position += length;
  }
  return bytes;
}

}  // namespace trireme::text
