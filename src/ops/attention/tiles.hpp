#pragma once
#include <ATen/ATen.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/attention/kernels.hpp"
#include "ops/attention/memo.hpp"
#include "ops/cpu_rows.hpp"

/// Attention on a CPU, tile by tile, around oneDNN's small matmuls in bf16 or fp32, with fp32
/// results. On CPUs that multiply fp32 faster, bf16 is widened. Private. For one head of one
/// document, D wide, in tiles of 64 keys and queries:
///
///   for each tile Q of queries:                           m = -inf, l = 0, O = 0
///     for each tile K, V of keys that Q sees:             S = K Q^T                [keys, queries]
///       m' = max(m, max over keys of S); P = exp(S - m')  masked keys: P = 0
///       r = exp(m - m'); l = l r + sum over keys of P     m = m'
///       O = O r + V^T P                                   [D, queries]
///     out = (O / l)^T, lse = m + log l                    what backward needs of the softmax
///   backward, again for each Q and each K, V:             P = exp(S - lse)
///     dV += P dO;  dS = P (V dO^T - rowsum(dO out));  dK += dS Q;  dQ += dS^T K
///
/// S and P are transposed (keys down, queries across): a query's statistics lie along the vector
/// lanes, and the softmax writes P in the layout that the next matmul reads. No tensor of size Tq x
/// Tk is kept, and tiles that no query sees are skipped. A key head's keys are sorted by position
/// once for all query heads of its group. Short documents of a row share tiles (bundle.hpp); an
/// infinity or NaN in one of them may then reach the others. Source: Dao et al., "FlashAttention",
/// NeurIPS 2022, for the online softmax and the recomputation in backward.
namespace trireme::ops::tiles {

using kernels::ScoreTile;
using Bits = std::uint16_t;

inline constexpr std::int64_t kQueries = kTileQueries;
inline constexpr std::int64_t kKeys = 64;  // per tile
inline constexpr std::int64_t kMaxWidth = 256;
inline constexpr std::int64_t kFewestQueries = 16;  // with explicit positions

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// The transposes need head widths that fill whole vectors of words of T.
template <class T>
bool fits_tiles(const at::Tensor& q, const AttentionSetup& setup) {
  constexpr std::int64_t kVector = 64 / sizeof(T);
  return q.size(3) % kVector == 0 && q.size(3) > 0 && q.size(3) <= kMaxWidth &&
         (setup.whole_rows() || q.size(2) >= kFewestQueries);
}

/// Computes (or adds, if `add`) out [rows, columns] = a [rows, depth] * b, with b in pairs of rows.
inline void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Bits* a,
                     std::int64_t a_stride, const Bits* b, float* out, bool add) {
  at::native::cpublas::brgemm(rows, columns, depth, a_stride, columns, columns, add,
                              reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), out);
}

/// Multiplies fp32 like the function for bf16, with b in rows.
inline void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                     std::int64_t a_stride, const float* b, float* out, bool add) {
  at::native::cpublas::brgemm(rows, columns, depth, a_stride, columns, columns, add, a, b, out);
}

/// 64-byte aligned memory from ATen's allocator.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::int64_t size)
      : bytes_(at::empty({size * static_cast<std::int64_t>(sizeof(T))}, at::kByte)),
        data_(static_cast<T*>(bytes_.data_ptr())),
        size_(size) {}

  [[nodiscard]] T* data() const { return data_; }

  void fill(T value) const { std::fill_n(data_, size_, value); }

 private:
  at::Tensor bytes_;
  T* data_;
  std::int64_t size_;
};

struct Rows {
  const at::Tensor& x;
  std::int64_t offset;
  std::int64_t stride;

  template <class T>
  [[nodiscard]] T* at(std::int64_t row) const {
    return static_cast<T*>(x.data_ptr()) + offset + row * stride;
  }

  [[nodiscard]] bool are_bf16() const { return x.scalar_type() == at::kBFloat16; }
};

inline Rows rows_of(const at::Tensor& x, std::int64_t batch, std::int64_t head,
                    std::int64_t first) {
  return {x, batch * x.stride(0) + head * x.stride(1) + first * x.stride(2), x.stride(2)};
}

inline void copy_row(const Rows& rows, std::int64_t row, std::int64_t width, Bits* out) {
  std::memcpy(out, rows.at<Bits>(row), static_cast<std::size_t>(width) * sizeof(Bits));
}

inline void copy_row(const Rows& rows, std::int64_t row, std::int64_t width, float* out) {
  if (!rows.are_bf16()) {
    std::memcpy(out, rows.at<float>(row), static_cast<std::size_t>(width) * sizeof(float));
    return;
  }
  const Bits* in = rows.at<Bits>(row);
  for (std::int64_t d = 0; d < width; ++d)
    out[d] = std::bit_cast<float>(static_cast<std::uint32_t>(in[d]) << 16U);
}

/// Copies `count` rows into out [padded, width] and fills the rest with zeros.
template <class T>
void copy_padded(const Rows& rows, std::int64_t count, std::int64_t padded, std::int64_t width,
                 T* out) {
  for (std::int64_t r = 0; r < count; ++r) copy_row(rows, r, width, out + r * width);
  std::fill_n(out + count * width, (padded - count) * width, T{});
}

template <class T>
std::uint32_t* words_of(T* numbers) {
  return reinterpret_cast<std::uint32_t*>(numbers);
}

/// Transposes 32-bit words [rows, columns].
template <class T>
void transpose_words(T* in, std::int64_t rows, std::int64_t columns, T* out) {
  kernels::table().transpose(words_of(in), columns, words_of(out), rows, rows, columns);
}

/// Transposes [rows, width] to [width, rows]. `scratch` has the size of both.
inline void transpose_rows(Bits* in, std::int64_t rows, std::int64_t width, Bits* scratch,
                           Bits* out) {
  kernels::table().pack_pairs(in, width, rows, width, words_of(scratch));
  transpose_words(scratch, rows / 2, width, out);
}

inline void transpose_rows(float* in, std::int64_t rows, std::int64_t width, float* /*scratch*/,
                           float* out) {
  transpose_words(in, rows, width, out);
}

/// Calls body(first column, tokens) for each range of a tile's queries.
template <class Body>
inline void for_ranges(const QueryTile& tile, const Body& body) {
  std::int64_t column = 0;
  for (const TokenRange& range : tile.tokens) {
    body(column, range);
    column += range.length;
  }
}

/// A tile of queries in the layouts that the matmuls read as second factor.
template <class T>
struct QueryPack {
  static constexpr std::int64_t kInWord = sizeof(float) / sizeof(T);

  explicit QueryPack(std::int64_t head_width)
      : width(head_width),
        rows(kQueries * width),
        by_width(kQueries * width),
        pairs(kInWord == 2 ? kQueries * width : 0) {}

  /// Loads words along the head's width, for products with [.., width]. Columns without a query are
  /// zeros.
  void load(const at::Tensor& x, std::int64_t batch, std::int64_t head,
            const QueryTile& tile) const {
    for_ranges(tile, [&](std::int64_t column, const TokenRange& range) {
      copy_padded(rows_of(x, batch, head, range.first), range.length, range.length, width,
                  rows.data() + column * width);
    });
    std::fill_n(rows.data() + tile.count * width, (kQueries - tile.count) * width, T{});
    transpose_words(rows.data(), kQueries, width / kInWord, by_width.data());
  }

  /// Packs words along queries, for products with [.., queries]. Rows of fp32 have this layout.
  void pack_by_query() const {
    if constexpr (kInWord == 2)
      kernels::table().pack_pairs(rows.data(), width, kQueries, width, words_of(pairs.data()));
  }

  [[nodiscard]] const T* by_query() const { return kInWord == 2 ? pairs.data() : rows.data(); }

  std::int64_t width;
  Buffer<T> rows;
  Buffer<T> by_width;  // words [width / kInWord, queries]
  Buffer<T> pairs;     // words [queries / 2, width]
};

/// The documents of one bundle in one row, and query heads that share one key head.
struct TileGroup {
  std::int64_t batch;
  std::int64_t kv_head;
  std::int64_t first_head;
  std::int64_t end_head;
  const DocumentBundle* bundle;
};

/// Returns groups of `heads` query heads each; `shared` query heads share one key head.
inline std::vector<TileGroup> groups_of(const std::vector<DocumentBundle>& bundles,
                                        const at::Tensor& q, std::int64_t shared,
                                        std::int64_t heads) {
  std::vector<TileGroup> groups;
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    for (std::int64_t head = 0; head < q.size(1); head += heads) {
      for (const DocumentBundle& bundle : bundles) {
        if (bundle.row < 0 || bundle.row == b)
          groups.push_back({b, head / shared, head, head + heads, &bundle});
      }
    }
  }
  return groups;
}

inline std::int64_t most_keys(const std::vector<DocumentBundle>& bundles) {
  std::int64_t keys = 0;
  for (const DocumentBundle& bundle : bundles) keys = std::max(keys, bundle.num_keys);
  return round_up(keys, kKeys);
}

/// Copies a bundle's keys or values in order into out [padded, width].
template <class T>
void copy_keys(const at::Tensor& x, const TileGroup& group, std::int64_t padded, std::int64_t width,
               T* out) {
  std::int64_t count = 0;
  for (const TokenRange& range : group.bundle->keys) {
    const bool last = count + range.length == group.bundle->num_keys;
    copy_padded(rows_of(x, group.batch, group.kv_head, range.first), range.length,
                last ? padded - count : range.length, width, out + count * width);
    count += range.length;
  }
}

/// Returns true if a query of the tile sees one of the keys [key, key + kKeys).
inline bool sees_keys(const QueryTile& tile, std::int64_t key) {
  bool sees = false;
  for (std::size_t q = 0; q < kQueries; ++q)
    sees |= tile.begin[q] < key + kKeys && tile.end[q] > std::max<std::int64_t>(key, tile.begin[q]);
  return sees;
}

/// Calls body(tile of scores, its first key) for each tile with a key that a query sees.
template <class Body>
inline void for_key_tiles(const QueryTile& queries, const AttentionSetup& setup, const Body& body) {
  for (std::int64_t key = queries.keys.begin / kKeys * kKeys; key < queries.keys.end;
       key += kKeys) {
    if (!sees_keys(queries, key)) continue;
    body(ScoreTile{kKeys, kQueries, static_cast<std::int32_t>(key), queries.begin.data(),
                   queries.end.data(), static_cast<float>(setup.scale)},
         key);
  }
}

/// Writes fp32 rows, each times its factor (null: 1), to x in fp32 or bf16.
inline void put_rows(const float* in, const float* factors, const at::Tensor& x, std::int64_t batch,
                     std::int64_t head, TokenRange tokens) {
  const auto width = x.size(3);
  const Rows rows = rows_of(x, batch, head, tokens.first);
  if (rows.are_bf16()) {
    kernels::table().round_rows(in, width, factors, rows.at<Bits>(0), rows.stride, tokens.length,
                                width);
    return;
  }
  for (std::int64_t row = 0; row < tokens.length; ++row) {
    const float factor = factors == nullptr ? 1.0F : factors[row];
    float* to = rows.at<float>(row);
    for (std::int64_t d = 0; d < width; ++d) to[d] = in[row * width + d] * factor;
  }
}

/// The work of a call. Heads that share keys are one group, which sorts the keys once. If there are
/// fewer groups than threads, each head has its own. The bits of the results are the same.
struct TileWork {
  TileWork(const AttentionSetup& setup, const at::Tensor& q, const at::Tensor& k)
      : bundles(planned_bundles(setup, q.size(0), q.size(2), k.size(2))),
        shared(q.size(1) / k.size(1)) {
    groups = groups_of(*bundles, q, shared, shared);
    divides_heads = shared > 1 && std::ssize(groups) < at::get_num_threads();
    if (divides_heads) groups = groups_of(*bundles, q, shared, 1);
  }

  std::shared_ptr<const std::vector<DocumentBundle>> bundles;
  std::int64_t shared;  // query heads of a key head
  bool divides_heads = false;
  std::vector<TileGroup> groups;
};

/// Calls body(group, scratch) for all groups on ATen's threads. Each group writes its own rows.
template <class Scratch, class Body>
inline void for_groups(const TileWork& work, std::int64_t width, const Body& body) {
  const auto length = most_keys(*work.bundles);
  at::parallel_for(0, std::ssize(work.groups), 1, [&](std::int64_t from, std::int64_t to) {
    Scratch scratch(length, width);
    for (auto i = from; i < to; ++i) body(work.groups[static_cast<std::size_t>(i)], scratch);
    at::native::cpublas::brgemm_release();
  });
}

}  // namespace trireme::ops::tiles
