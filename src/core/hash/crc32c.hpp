#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), the checksum of slices. Unlike a hash it
/// joins: parts of a slice may be checked in any order by any number of threads, then combined.
/// Finds every error burst of at most 32 bits and misses other damage once in 2^32.
/// Source: RFC 3720 appendix B.4 (polynomial and test vectors).
namespace trireme {

/// The checksum of `earlier` bytes followed by `bytes`, given the former's checksum (0:
/// none yet). Uses the processor's instruction where there is one, three streams
/// at a time to hide its latency.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t earlier = 0) noexcept;

/// The same by tables, on any processor.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t earlier = 0) noexcept;

/// The checksum of A followed by B, from both checksums and B's length.
std::uint32_t crc32c_join(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes) noexcept;

inline constexpr std::size_t kChecksumDigits = 8;

/// kChecksumDigits lower-case hexadecimal digits.
std::string crc32c_hex(std::uint32_t checksum);

}  // namespace trireme
