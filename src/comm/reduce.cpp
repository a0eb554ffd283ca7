#include "comm/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/dtype.hpp"
#include "core/error.hpp"

// The compiler makes a clone of each function for newer processors, and the loader selects one.
// Sanitizers do not support this.
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TRIREME_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TRIREME_CLONES
#endif

namespace trireme::comm {
namespace {

constexpr std::uint64_t kTile = 2048;  // one tile of accumulators fits into the L1 cache

struct Bf16 {
  using Stored = std::uint16_t;
  using Wide = float;

  static Wide widen(Stored bits) noexcept { return from_bf16_bits(bits); }

  static Stored narrow(Wide value) noexcept { return to_bf16_bits(value); }
};

struct F16 {
  using Stored = std::uint16_t;
  using Wide = float;

  static Wide widen(Stored bits) noexcept { return from_f16_bits(bits); }

  static Stored narrow(Wide value) noexcept { return to_f16_bits(value); }
};

template <class T>
struct Plain {
  using Stored = T;
  // Unsigned arithmetic makes integer sums wrap around. Signed overflow would be undefined.
  using Wide = T;

  static Wide widen(Stored value) noexcept { return value; }

  static Stored narrow(Wide value) noexcept { return value; }
};

template <ReduceOp op, class T>
inline T combine(T a, T b) noexcept {
  if constexpr (op == ReduceOp::sum) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(
          static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else {
      return a + b;
    }
  } else if constexpr (op == ReduceOp::max) {
    return a > b || a != a ? a : b;  // a != a: NaN stays
  } else {
    return a < b || a != a ? a : b;
  }
}

template <class Format, ReduceOp op>
TRIREME_CLONES void two(const typename Format::Stored* a, const typename Format::Stored* b,
                        typename Format::Stored* out, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i)
    out[i] = Format::narrow(combine<op>(Format::widen(a[i]), Format::widen(b[i])));
}

template <class Format>
TRIREME_CLONES void load(const typename Format::Stored* in, typename Format::Wide* out,
                         std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) out[i] = Format::widen(in[i]);
}

template <class Format, ReduceOp op>
TRIREME_CLONES void add(const typename Format::Stored* in, typename Format::Wide* out,
                        std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) out[i] = combine<op>(out[i], Format::widen(in[i]));
}

template <class Format>
TRIREME_CLONES void store(const typename Format::Wide* in, typename Format::Stored* out,
                          std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) out[i] = Format::narrow(in[i]);
}

template <class Format, ReduceOp op>
void reduce_as(std::span<const void* const> inputs, void* output, std::uint64_t count) {
  using Stored = typename Format::Stored;
  const auto at = [&](std::size_t i) { return static_cast<const Stored*>(inputs[i]); };
  auto* out = static_cast<Stored*>(output);
  if (inputs.size() == 1) {
    if (out != at(0)) std::memmove(out, at(0), count * sizeof(Stored));
    return;
  }
  if (inputs.size() == 2) {
    two<Format, op>(at(0), at(1), out, count);
    return;
  }
  std::array<typename Format::Wide, kTile> tile;
  for (std::uint64_t begin = 0; begin < count; begin += kTile) {
    const std::uint64_t n = std::min(kTile, count - begin);
    load<Format>(at(0) + begin, tile.data(), n);
    for (std::size_t i = 1; i < inputs.size(); ++i) add<Format, op>(at(i) + begin, tile.data(), n);
    store<Format>(tile.data(), out + begin, n);
  }
}

template <class Format>
void reduce_format(std::span<const void* const> inputs, void* output, std::uint64_t count,
                   ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_as<Format, ReduceOp::sum>(inputs, output, count);
    case ReduceOp::max:
      return reduce_as<Format, ReduceOp::max>(inputs, output, count);
    case ReduceOp::min:
      return reduce_as<Format, ReduceOp::min>(inputs, output, count);
  }
}

}  // namespace

void reduce_in_order(std::span<const void* const> inputs, void* output, std::uint64_t count,
                     DType dtype, ReduceOp op) {
  TRIREME_ASSERT(!inputs.empty());
  constexpr std::array kByDType{reduce_format<Plain<double>>,
                                reduce_format<Plain<float>>,
                                reduce_format<Bf16>,
                                reduce_format<F16>,
                                reduce_format<Plain<std::int64_t>>,
                                reduce_format<Plain<std::int32_t>>,
                                reduce_format<Plain<std::int16_t>>,
                                reduce_format<Plain<std::int8_t>>,
                                reduce_format<Plain<std::uint64_t>>,
                                reduce_format<Plain<std::uint32_t>>,
                                reduce_format<Plain<std::uint16_t>>,
                                reduce_format<Plain<std::uint8_t>>};
  kByDType[static_cast<std::size_t>(dtype)](inputs, output, count, op);
}

}  // namespace trireme::comm
