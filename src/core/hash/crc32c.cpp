#include "core/hash/crc32c.hpp"

#include <array>
#include <cstring>

#include "core/hash/hex.hpp"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trireme {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

/// table[k][b] is the register after byte b and k zero bytes.
constexpr Table make_table() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = table[k - 1][byte];
      table[k][byte] = (before >> 8) ^ table[0][before & 255];
    }
  }
  return table;
}

constexpr Table kTable = make_table();

/// Returns a * b modulo the polynomial; bit 31 is x^0.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

/// Returns x^(8 * bytes) modulo the polynomial, the effect of `bytes` zero bytes on the register.
constexpr std::uint32_t zeros(std::uint64_t bytes) {
  std::uint32_t result = 0x80000000;  // x^0
  std::uint32_t power = 0x00800000;   // x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

std::uint64_t load_u64(const std::byte* at) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint32_t run_tables(std::uint32_t state, const std::byte* at, std::size_t size) noexcept {
  for (; size >= 8; at += 8, size -= 8) {
    const std::uint64_t word = load_u64(at) ^ state;
    state = 0;
    for (std::size_t byte = 0; byte < 8; ++byte)
      state ^= kTable[7 - byte][(word >> (8 * byte)) & 255];
  }
  for (; size > 0; ++at, --size)
    state = (state >> 8) ^ kTable[0][(state ^ static_cast<std::uint32_t>(*at)) & 255];
  return state;
}

#if defined(__x86_64__)

constexpr std::size_t kLane = 2048;  // bytes of each of the three streams of one round

using ShiftTable = std::array<std::array<std::uint32_t, 256>, 4>;

/// shift[k][b] is the effect of kLane zero bytes on a register with byte b at position k.
constexpr ShiftTable make_shift(std::uint64_t bytes) {
  ShiftTable shift{};
  const std::uint32_t factor = zeros(bytes);
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      shift[k][byte] = multiply(factor, byte << (8 * k));
  }
  return shift;
}

const ShiftTable kLaneShift = make_shift(kLane);

std::uint32_t shifted(std::uint32_t state) noexcept {
  return kLaneShift[0][state & 255] ^ kLaneShift[1][(state >> 8) & 255] ^
         kLaneShift[2][(state >> 16) & 255] ^ kLaneShift[3][state >> 24];
}

/// The instruction takes 3 cycles but can start every cycle, so it runs on three streams.
__attribute__((target("sse4.2"))) std::uint32_t run_instruction(std::uint32_t state,
                                                                const std::byte* at,
                                                                std::size_t size) noexcept {
  for (; size >= 3 * kLane; at += 3 * kLane, size -= 3 * kLane) {
    std::uint64_t a = state;
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, load_u64(at + i));
      b = _mm_crc32_u64(b, load_u64(at + kLane + i));
      c = _mm_crc32_u64(c, load_u64(at + 2 * kLane + i));
    }
    state = shifted(shifted(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b)) ^
            static_cast<std::uint32_t>(c);
  }
  std::uint64_t rest = state;
  for (; size >= 8; at += 8, size -= 8) rest = _mm_crc32_u64(rest, load_u64(at));
  state = static_cast<std::uint32_t>(rest);
  for (; size > 0; ++at, --size) state = _mm_crc32_u8(state, static_cast<unsigned char>(*at));
  return state;
}

#endif

using Run = std::uint32_t (*)(std::uint32_t, const std::byte*, std::size_t) noexcept;

Run choose_run() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") != 0) return run_instruction;
#endif
  return run_tables;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t earlier) noexcept {
  static const Run run = choose_run();
  return ~run(~earlier, bytes.data(), bytes.size());
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t earlier) noexcept {
  return ~run_tables(~earlier, bytes.data(), bytes.size());
}

std::uint32_t crc32c_join(std::uint32_t a, std::uint32_t b, std::uint64_t b_bytes) noexcept {
  return multiply(zeros(b_bytes), a) ^ b;
}

std::string crc32c_hex(std::uint32_t checksum) {
  return hex_text(checksum);
}

}  // namespace trireme
