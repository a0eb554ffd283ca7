#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// The byte alphabet of byte-level BPE: every byte has one printable character.
/// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves, the other 68 bytes in ascending order
/// are U+0100... Source: Radford et al., GPT-2 (2019), `bytes_to_unicode`.
namespace trireme {

/// Code point that stands for `byte`; at most U+0143.
std::uint32_t byte_level_char(std::uint8_t byte) noexcept;

/// `bytes` in the alphabet, as UTF-8.
std::string to_byte_level(std::string_view bytes);

/// The bytes that `token` (UTF-8) stands for. A token with any character outside the alphabet
/// stands for its own UTF-8, and `whole` (if given) becomes false.
std::string from_byte_level(std::string_view token, bool* whole = nullptr);

}  // namespace trireme
