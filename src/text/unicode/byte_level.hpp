#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// The byte alphabet of byte-level BPE: every byte has one printable character. 0x21-0x7E,
/// 0xA1-0xAC and 0xAE-0xFF stand for themselves; the other 68 bytes in ascending order are U+0100
/// and following. Source: Radford et al., GPT-2 (2019), `bytes_to_unicode`.
namespace trireme::text {

/// Returns the code point for `byte`; at most U+0143.
std::uint32_t byte_level_char(std::uint8_t byte) noexcept;

/// Returns `bytes` in the byte alphabet, as UTF-8.
std::string to_byte_level(std::string_view bytes);

/// Returns the bytes of `token` (UTF-8). If a character is outside the alphabet, returns the UTF-8
/// of the token and sets `whole` (if given) to false.
std::string from_byte_level(std::string_view token, bool* whole = nullptr);

}  // namespace trireme::text
