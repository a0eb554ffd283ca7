#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), the checksum of slices. Checksums can be
/// joined: any number of threads may check parts of a slice in any order and combine the results.
/// CRC-32C finds every error burst of at most 32 bits and misses other damage once in 2^32. Source:
/// RFC 3720 appendix B.4 (polynomial and test vectors).
namespace trireme {

/// Returns the checksum of some earlier bytes followed by `bytes`; `earlier` is the checksum of the
/// former (0: none). Uses the CRC instruction if available, on three streams.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t earlier = 0) noexcept;

/// Like crc32c(), with tables that work on any processor.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t earlier = 0) noexcept;

/// Returns the checksum of A followed by B from both checksums and B's length.
std::uint32_t crc32c_join(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes) noexcept;

inline constexpr std::size_t kChecksumDigits = 8;

/// Returns kChecksumDigits lower-case hexadecimal digits.
std::string crc32c_hex(std::uint32_t checksum);

}  // namespace trireme
