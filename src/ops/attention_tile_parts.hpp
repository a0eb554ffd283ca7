#pragma once
#include <ATen/ATen.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/attention.hpp"
#include "ops/fast.hpp"

/// What the forward and the backward of tiled attention share: tiles of one head and one
/// document in scratch memory, multiplied by oneDNN's small matmuls.
namespace trireme::ops::tiles {

using kernels::ScoreTile;
using Bits = std::uint16_t;

inline constexpr std::int64_t kQueries = 64;  // of one tile
inline constexpr std::int64_t kKeys = 64;
inline constexpr std::int64_t kMaxWidth = 256;

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// out [rows, columns] = a [rows, depth] * b, b in pairs of rows; added to out if `add`.
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

/// Rows of one head and one document.
struct Rows {
  Bits* data;
  std::int64_t stride;
};

inline Rows rows_of(const at::Tensor& x, std::int64_t batch, std::int64_t head,
                    std::int64_t first) {
  auto* base = static_cast<Bits*>(x.data_ptr());
  return {base + batch * x.stride(0) + head * x.stride(1) + first * x.stride(2), x.stride(2)};
}

/// Copies `count` rows into out [padded, width]; the rest is zero.
inline void copy_padded(Rows rows, std::int64_t count, std::int64_t padded, std::int64_t width,
                        Bits* out) {
  const auto bytes = static_cast<std::size_t>(width) * sizeof(Bits);
  for (std::int64_t r = 0; r < count; ++r)
    std::memcpy(out + r * width, rows.data + r * rows.stride, bytes);
  std::fill_n(out + count * width, (padded - count) * width, Bits{0});
}

/// [rows, width] -> [width, rows] of bf16; `pairs` is scratch of rows / 2 * width.
inline void transpose_bf16(const Bits* in, std::int64_t rows, std::int64_t width,
                           std::uint32_t* pairs, Bits* out) {
  kernels::table().pack_pairs(in, width, rows, width, pairs);
  kernels::table().transpose(pairs, width, reinterpret_cast<std::uint32_t*>(out), rows / 2,
                             rows / 2, width);
}

/// A tile of queries in the layouts that the matmuls read as their second factor.
struct QueryPack {
  explicit QueryPack(std::int64_t head_width)
      : width(head_width),
        rows(kQueries * width),
        by_width(kQueries * width / 2),
        by_query(kQueries * width / 2) {}

  /// Pairs along the head's width: for products with [.., width].
  void load(Rows source, std::int64_t count) const {
    copy_padded(source, count, kQueries, width, rows.data());
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(rows.data()), width / 2,
                               by_width.data(), kQueries, kQueries, width / 2);
  }

  /// Pairs along queries: for products with [.., queries].
  void pack_by_query() const {
    kernels::table().pack_pairs(rows.data(), width, kQueries, width, by_query.data());
  }

  std::int64_t width;
  Buffer<Bits> rows;
  Buffer<std::uint32_t> by_width;  // [width / 2, queries] pairs
  Buffer<std::uint32_t> by_query;  // [queries / 2, width] pairs
};

struct Document {
  std::int64_t batch;
  std::int64_t kv_head;
  std::int64_t first;
  std::int64_t length;
};

inline std::vector<Document> documents_of(const at::Tensor& k, const AttentionSetup& setup) {
  std::vector<Document> documents;
  for (std::int64_t b = 0; b < k.size(0); ++b) {
    const auto edges = setup.bounds.empty() ? std::vector<std::int64_t>{0, k.size(2)}
                                            : setup.bounds[static_cast<std::size_t>(b)];
    for (std::int64_t head = 0; head < k.size(1); ++head) {
      for (std::size_t i = 1; i < edges.size(); ++i) {
        documents.push_back({b, head, edges[i - 1], edges[i] - edges[i - 1]});
      }
    }
  }
  return documents;
}

inline std::int64_t longest(const std::vector<Document>& documents) {
  std::int64_t length = 0;
  for (const auto& document : documents) length = std::max(length, document.length);
  return round_up(length, kKeys);
}

inline ScoreTile tile_at(const Document& document, std::int64_t query, std::int64_t key,
                         const AttentionSetup& setup) {
  return {kKeys,       kQueries,     std::min(kKeys, document.length - key),
          query - key, setup.causal, static_cast<float>(setup.scale)};
}

/// Keys that a tile of queries starting at `query` may see end here.
inline std::int64_t key_limit(const Document& document, std::int64_t query,
                              const AttentionSetup& setup) {
  return setup.causal ? std::min(document.length, query + kQueries) : document.length;
}

/// Calls body(document, scratch) for all documents, on as many threads as ATen has; each writes
/// rows of its own.
template <class Scratch, class Body>
inline void for_documents(const at::Tensor& k, const AttentionSetup& setup, const Body& body) {
  const auto documents = documents_of(k, setup);
  const auto length = longest(documents);
  at::parallel_for(0, static_cast<std::int64_t>(documents.size()), 1,
                   [&](std::int64_t from, std::int64_t to) {
                     Scratch scratch(length, k.size(3));
                     for (auto i = from; i < to; ++i)
                       body(documents[static_cast<std::size_t>(i)], scratch);
                     at::native::cpublas::brgemm_release();
                   });
}

inline at::Tensor last_dim_contiguous(const at::Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

}  // namespace trireme::ops::tiles
