#pragma once
#include <ATen/ATen.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/attention/kernels.hpp"
#include "ops/cpu_rows.hpp"

/// Attention of bf16 tensors on a CPU, tile by tile, around oneDNN's small matmuls (bf16 in, fp32
/// out). Private. For one head of one document, D wide, in tiles of 64 keys and queries:
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
/// once for all query heads of its group. Source: Dao et al., "FlashAttention", NeurIPS 2022, for
/// the online softmax and the recomputation in backward.
namespace trireme::ops::tiles {

using kernels::ScoreTile;
using Bits = std::uint16_t;

inline constexpr std::int64_t kQueries = 64;  // per tile
inline constexpr std::int64_t kKeys = 64;
inline constexpr std::int64_t kMaxWidth = 256;

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Computes (or adds, if `add`) out [rows, columns] = a [rows, depth] * b, with b in pairs of rows.
inline void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Bits* a,
                     std::int64_t a_stride, const void* b, float* out, bool add) {
  at::native::cpublas::brgemm(rows, columns, depth, a_stride, columns, columns, add,
                              reinterpret_cast<const at::BFloat16*>(a),
                              static_cast<const at::BFloat16*>(b), out);
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
  Bits* data;
  std::int64_t stride;
};

inline Rows rows_of(const at::Tensor& x, std::int64_t batch, std::int64_t head,
                    std::int64_t first) {
  auto* base = static_cast<Bits*>(x.data_ptr());
  return {base + batch * x.stride(0) + head * x.stride(1) + first * x.stride(2), x.stride(2)};
}

/// Copies `count` rows into out [padded, width] and fills the rest with zeros.
inline void copy_padded(Rows rows, std::int64_t count, std::int64_t padded, std::int64_t width,
                        Bits* out) {
  const auto bytes = static_cast<std::size_t>(width) * sizeof(Bits);
  for (std::int64_t r = 0; r < count; ++r)
    std::memcpy(out + r * width, rows.data + r * rows.stride, bytes);
  std::fill_n(out + count * width, (padded - count) * width, Bits{0});
}

/// Transposes bf16 [rows, width] to [width, rows]. `pairs` is scratch of rows / 2 * width.
inline void transpose_bf16(const Bits* in, std::int64_t rows, std::int64_t width,
                           std::uint32_t* pairs, Bits* out) {
  kernels::table().pack_pairs(in, width, rows, width, pairs);
  kernels::table().transpose(pairs, width, reinterpret_cast<std::uint32_t*>(out), rows / 2,
                             rows / 2, width);
}

/// A tile of queries in the layouts that the matmuls read as second factor.
struct QueryPack {
  explicit QueryPack(std::int64_t head_width)
      : width(head_width),
        rows(kQueries * width),
        by_width(kQueries * width / 2),
        by_query(kQueries * width / 2) {}

  /// Loads pairs along the head's width, for products with [.., width].
  void load(Rows source, std::int64_t count) const {
    copy_padded(source, count, kQueries, width, rows.data());
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(rows.data()), width / 2,
                               by_width.data(), kQueries, kQueries, width / 2);
  }

  /// Packs pairs along queries, for products with [.., queries].
  void pack_by_query() const {
    kernels::table().pack_pairs(rows.data(), width, kQueries, width, by_query.data());
  }

  std::int64_t width;
  Buffer<Bits> rows;
  Buffer<std::uint32_t> by_width;  // [width / 2, queries] pairs
  Buffer<std::uint32_t> by_query;  // [queries / 2, width] pairs
};

/// One document of one row and the query heads that share one key head.
struct TileGroup {
  std::int64_t batch;
  std::int64_t kv_head;
  const DocumentPlan* document;
};

inline std::vector<TileGroup> groups_of(const AttentionPlan& plan, const at::Tensor& k) {
  std::vector<TileGroup> groups;
  for (std::int64_t b = 0; b < k.size(0); ++b) {
    for (std::int64_t head = 0; head < k.size(1); ++head) {
      for (const DocumentPlan& document : plan) {
        if (document.row < 0 || document.row == b) groups.push_back({b, head, &document});
      }
    }
  }
  return groups;
}

inline std::int64_t most_keys(const AttentionPlan& plan) {
  std::int64_t keys = 0;
  for (const DocumentPlan& document : plan) keys = std::max(keys, document.num_keys);
  return round_up(keys, kKeys);
}

/// Copies a document's keys or values in order of position into out [padded, width].
inline void copy_document(const at::Tensor& x, const TileGroup& group, std::int64_t padded,
                          std::int64_t width, Bits* out) {
  std::int64_t count = 0;
  for (const TokenRange& range : group.document->keys) {
    const bool last = count + range.length == group.document->num_keys;
    copy_padded(rows_of(x, group.batch, group.kv_head, range.first), range.length,
                last ? padded - count : range.length, width, out + count * width);
    count += range.length;
  }
}

/// Calls body(tile of keys, its first key) for each tile with a key that a query sees.
template <class Body>
inline void for_key_tiles(const QueryPart& queries, const AttentionSetup& setup, const Body& body) {
  if (queries.sees_no_key()) return;
  const auto end = queries.keys().end;
  for (std::int64_t key = queries.first.begin / kKeys * kKeys; key < end; key += kKeys) {
    body(ScoreTile{kKeys,
                   kQueries,
                   {queries.first.begin - key, queries.first.end - key},
                   queries.begin_moves,
                   queries.end_moves,
                   static_cast<float>(setup.scale)},
         key);
  }
}

/// Writes fp32 rows, each times its factor (null: 1), to x in fp32 or bf16.
inline void put_rows(const float* in, const float* factors, const at::Tensor& x, std::int64_t batch,
                     std::int64_t head, TokenRange tokens) {
  const auto width = x.size(3);
  if (x.scalar_type() == at::kBFloat16) {
    const auto rows = rows_of(x, batch, head, tokens.first);
    kernels::table().round_rows(in, width, factors, rows.data, rows.stride, tokens.length, width);
    return;
  }
  float* out = x.data_ptr<float>() + batch * x.stride(0) + head * x.stride(1);
  for (std::int64_t row = 0; row < tokens.length; ++row) {
    const float factor = factors == nullptr ? 1.0F : factors[row];
    float* to = out + (tokens.first + row) * x.stride(2);
    for (std::int64_t d = 0; d < width; ++d) to[d] = in[row * width + d] * factor;
  }
}

/// Calls body(group, scratch) for all groups on ATen's threads. Each group writes its own rows.
template <class Scratch, class Body>
inline void for_groups(const AttentionPlan& plan, const at::Tensor& k, const Body& body) {
  const auto groups = groups_of(plan, k);
  const auto length = most_keys(plan);
  at::parallel_for(0, static_cast<std::int64_t>(groups.size()), 1,
                   [&](std::int64_t from, std::int64_t to) {
                     Scratch scratch(length, k.size(3));
                     for (auto i = from; i < to; ++i)
                       body(groups[static_cast<std::size_t>(i)], scratch);
                     at::native::cpublas::brgemm_release();
                   });
}

}  // namespace trireme::ops::tiles
