#include "ops/attention_blocks.hpp"

#include <ATen/native/CPUBlas.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ops/fast.hpp"

namespace trireme::ops {
namespace {

using kernels::ScoreBlock;
using Bits = std::uint16_t;

constexpr std::int64_t kQueries = 64;  // of one block
constexpr std::int64_t kKeys = 64;
constexpr std::int64_t kMaxWidth = 256;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// out [rows, columns] = a [rows, depth] * b, b in pairs of rows; added to out if `add`.
void multiply(std::int64_t rows,
              std::int64_t columns,
              std::int64_t depth,
              const Bits* a,
              std::int64_t a_stride,
              const void* b,
              float* out,
              bool add) {
  at::native::cpublas::brgemm(rows,
                              columns,
                              depth,
                              a_stride,
                              columns,
                              columns,
                              add,
                              reinterpret_cast<const at::BFloat16*>(a),
                              static_cast<const at::BFloat16*>(b),
                              out);
}

bool multiplies_bf16() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  try {  // oneDNN may have been told to use less than the CPU has
    const std::array<Bits, 32 * 32> zeros{};
    std::array<float, 32 * 32> out{};
    multiply(32, 32, 32, zeros.data(), 32, zeros.data(), out.data(), false);
    at::native::cpublas::brgemm_release();
    return true;
  } catch (const std::exception&) {
    return false;
  }
#else
  return false;
#endif
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

Rows rows_of(const at::Tensor& x, std::int64_t batch, std::int64_t head, std::int64_t first) {
  auto* base = static_cast<Bits*>(x.data_ptr());
  return {base + batch * x.stride(0) + head * x.stride(1) + first * x.stride(2), x.stride(2)};
}

/// Copies `count` rows into out [padded, width]; the rest is zero.
void copy_padded(
    Rows rows, std::int64_t count, std::int64_t padded, std::int64_t width, Bits* out) {
  const auto bytes = static_cast<std::size_t>(width) * sizeof(Bits);
  for (std::int64_t r = 0; r < count; ++r)
    std::memcpy(out + r * width, rows.data + r * rows.stride, bytes);
  std::fill_n(out + count * width, (padded - count) * width, Bits{0});
}

/// [rows, width] -> [width, rows] of bf16; `pairs` is scratch of rows / 2 * width.
void transpose_bf16(
    const Bits* in, std::int64_t rows, std::int64_t width, std::uint32_t* pairs, Bits* out) {
  kernels::table().pack_pairs(in, width, rows, width, pairs);
  kernels::table().transpose(
      pairs, width, reinterpret_cast<std::uint32_t*>(out), rows / 2, rows / 2, width);
}

/// A block of queries in the layouts that the matmuls read as their second factor.
struct QueryPack {
  explicit QueryPack(std::int64_t head_width)
      : width(head_width),
        rows(kQueries * width),
        by_width(kQueries * width / 2),
        by_query(kQueries * width / 2) {}

  /// Pairs along the head's width: for products with [.., width].
  void load(Rows source, std::int64_t count) const {
    copy_padded(source, count, kQueries, width, rows.data());
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(rows.data()),
                               width / 2,
                               by_width.data(),
                               kQueries,
                               kQueries,
                               width / 2);
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

std::vector<Document> documents_of(const at::Tensor& k, const AttentionSetup& setup) {
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

std::int64_t longest(const std::vector<Document>& documents) {
  std::int64_t length = 0;
  for (const auto& document : documents) length = std::max(length, document.length);
  return round_up(length, kKeys);
}

ScoreBlock block_at(const Document& document,
                    std::int64_t query,
                    std::int64_t key,
                    const AttentionSetup& setup) {
  return {kKeys,
          kQueries,
          std::min(kKeys, document.length - key),
          query - key,
          setup.causal,
          static_cast<float>(setup.scale)};
}

/// Keys that a block of queries starting at `query` may see end here.
std::int64_t key_limit(const Document& document, std::int64_t query, const AttentionSetup& setup) {
  return setup.causal ? std::min(document.length, query + kQueries) : document.length;
}

struct ForwardScratch {
  ForwardScratch(std::int64_t length, std::int64_t width)
      : keys(length * width),
        values(length * width),
        values_across(length * width),
        pairs(length / 2 * width),
        query(width),
        scores(kKeys * kQueries),
        weights(kKeys * kQueries),
        out(width * kQueries),
        out_rows(width * kQueries) {}

  Buffer<Bits> keys;           // [length, D]
  Buffer<Bits> values;         // [length, D]
  Buffer<Bits> values_across;  // [D, length]
  Buffer<std::uint32_t> pairs;
  QueryPack query;
  Buffer<float> scores;    // [keys, queries]
  Buffer<Bits> weights;    // pairs of keys
  Buffer<float> out;       // [D, queries]
  Buffer<float> out_rows;  // [queries, D]
  std::array<float, kQueries> maximum{};
  std::array<float, kQueries> total{};
};

void forward_block(const Document& document,
                   std::int64_t query,
                   std::int64_t padded,
                   const AttentionSetup& setup,
                   ForwardScratch& s) {
  const auto width = s.query.width;
  s.maximum.fill(-std::numeric_limits<float>::infinity());
  s.total.fill(0);
  s.out.fill(0);
  const auto limit = key_limit(document, query, setup);
  for (std::int64_t key = 0; key < limit; key += kKeys) {
    multiply(kKeys,
             kQueries,
             width,
             s.keys.data() + key * width,
             width,
             s.query.by_width.data(),
             s.scores.data(),
             false);
    kernels::table().softmax_block(block_at(document, query, key, setup),
                                   s.scores.data(),
                                   s.maximum.data(),
                                   s.total.data(),
                                   s.weights.data(),
                                   s.out.data(),
                                   width);
    multiply(width,
             kQueries,
             kKeys,
             s.values_across.data() + key,
             padded,
             s.weights.data(),
             s.out.data(),
             true);
  }
}

void forward_document(const Document& document,
                      const at::Tensor& q,
                      const at::Tensor& k,
                      const at::Tensor& v,
                      const AttentionSetup& setup,
                      const AttentionOutput& result,
                      ForwardScratch& s) {
  const auto width = q.size(3);
  const auto groups = q.size(1) / k.size(1);
  const auto padded = round_up(document.length, kKeys);
  copy_padded(rows_of(k, document.batch, document.kv_head, document.first),
              document.length,
              padded,
              width,
              s.keys.data());
  copy_padded(rows_of(v, document.batch, document.kv_head, document.first),
              document.length,
              padded,
              width,
              s.values.data());
  transpose_bf16(s.values.data(), padded, width, s.pairs.data(), s.values_across.data());
  for (auto head = document.kv_head * groups; head < (document.kv_head + 1) * groups; ++head) {
    float* lse = result.lse.data_ptr<float>() + (document.batch * q.size(1) + head) * q.size(2) +
                 document.first;
    for (std::int64_t query = 0; query < document.length; query += kQueries) {
      const auto count = std::min(kQueries, document.length - query);
      s.query.load(rows_of(q, document.batch, head, document.first + query), count);
      forward_block(document, query, padded, setup, s);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        lse[query + static_cast<std::int64_t>(i)] =
            s.maximum[i] * 0.69314718F + std::log(s.total[i]);  // the maximum is in log2 units
        s.total[i] = 1.0F / s.total[i];
      }
      kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(s.out.data()),
                                 kQueries,
                                 reinterpret_cast<std::uint32_t*>(s.out_rows.data()),
                                 width,
                                 width,
                                 kQueries);
      const auto out = rows_of(result.out, document.batch, head, document.first + query);
      kernels::table().round_rows(
          s.out_rows.data(), width, s.total.data(), out.data, out.stride, count, width);
    }
  }
}

struct BackwardScratch {
  BackwardScratch(std::int64_t length, std::int64_t width)
      : keys(length * width),
        values(length * width),
        keys_across(length * width),
        pairs(length / 2 * width),
        grad_keys(length * width),
        grad_values(length * width),
        query(width),
        grad_out(width),
        scores(kKeys * kQueries),
        grad_weights(kKeys * kQueries),
        weights(kKeys * kQueries),
        grad_scores(kKeys * kQueries),
        grad_scores_pairs(kKeys * kQueries),
        grad_query(width * kQueries),
        grad_query_rows(width * kQueries) {}

  Buffer<Bits> keys;         // [length, D]
  Buffer<Bits> values;       // [length, D]
  Buffer<Bits> keys_across;  // [D, length]
  Buffer<std::uint32_t> pairs;
  Buffer<float> grad_keys;    // [length, D]
  Buffer<float> grad_values;  // [length, D]
  QueryPack query;
  QueryPack grad_out;
  Buffer<float> scores;        // [keys, queries]
  Buffer<float> grad_weights;  // [keys, queries]
  Buffer<Bits> weights;        // [keys, queries]
  Buffer<Bits> grad_scores;    // [keys, queries]
  Buffer<Bits> grad_scores_pairs;
  Buffer<float> grad_query;       // [D, queries]
  Buffer<float> grad_query_rows;  // [queries, D]
  std::array<float, kQueries> lse{};
  std::array<float, kQueries> along{};
};

void backward_block(const Document& document,
                    std::int64_t query,
                    std::int64_t padded,
                    const AttentionSetup& setup,
                    BackwardScratch& s) {
  const auto width = s.query.width;
  const auto limit = key_limit(document, query, setup);
  for (std::int64_t key = 0; key < limit; key += kKeys) {
    multiply(kKeys,
             kQueries,
             width,
             s.keys.data() + key * width,
             width,
             s.query.by_width.data(),
             s.scores.data(),
             false);
    multiply(kKeys,
             kQueries,
             width,
             s.values.data() + key * width,
             width,
             s.grad_out.by_width.data(),
             s.grad_weights.data(),
             false);
    kernels::table().softmax_block_backward(block_at(document, query, key, setup),
                                            s.scores.data(),
                                            s.grad_weights.data(),
                                            s.lse.data(),
                                            s.along.data(),
                                            s.weights.data(),
                                            s.grad_scores.data(),
                                            s.grad_scores_pairs.data());
    multiply(kKeys,
             width,
             kQueries,
             s.weights.data(),
             kQueries,
             s.grad_out.by_query.data(),
             s.grad_values.data() + key * width,
             true);
    multiply(kKeys,
             width,
             kQueries,
             s.grad_scores.data(),
             kQueries,
             s.query.by_query.data(),
             s.grad_keys.data() + key * width,
             true);
    multiply(width,
             kQueries,
             kKeys,
             s.keys_across.data() + key,
             padded,
             s.grad_scores_pairs.data(),
             s.grad_query.data(),
             key > 0);
  }
}

struct BackwardInput {
  const at::Tensor& grad_out;
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const at::Tensor& out;
  const at::Tensor& lse;
};

/// One query head: adds to grad_keys and grad_values of the scratch, writes the rows of grads.q.
void backward_head(const Document& document,
                   std::int64_t head,
                   const BackwardInput& in,
                   const AttentionSetup& setup,
                   const AttentionGrads& grads,
                   BackwardScratch& s) {
  const auto width = in.q.size(3);
  const auto padded = round_up(document.length, kKeys);
  const float* lse = in.lse.data_ptr<float>() +
                     (document.batch * in.q.size(1) + head) * in.q.size(2) + document.first;
  for (std::int64_t query = 0; query < document.length; query += kQueries) {
    const auto count = std::min(kQueries, document.length - query);
    const auto first = document.first + query;
    const auto grad_rows = rows_of(in.grad_out, document.batch, head, first);
    const auto out_rows = rows_of(in.out, document.batch, head, first);
    s.query.load(rows_of(in.q, document.batch, head, first), count);
    s.query.pack_by_query();
    s.grad_out.load(grad_rows, count);
    s.grad_out.pack_by_query();
    // Padding queries are rows of zeros: with finite weights they add zeros to the sums.
    s.lse.fill(0);
    s.along.fill(0);
    std::copy_n(lse + query, count, s.lse.data());
    kernels::table().row_products(grad_rows.data,
                                  grad_rows.stride,
                                  out_rows.data,
                                  out_rows.stride,
                                  s.along.data(),
                                  count,
                                  width);
    backward_block(document, query, padded, setup, s);
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(s.grad_query.data()),
                               kQueries,
                               reinterpret_cast<std::uint32_t*>(s.grad_query_rows.data()),
                               width,
                               width,
                               kQueries);
    const auto grad_q = rows_of(grads.q, document.batch, head, first);
    kernels::table().round_rows(
        s.grad_query_rows.data(), width, nullptr, grad_q.data, grad_q.stride, count, width);
  }
}

void backward_document(const Document& document,
                       const BackwardInput& in,
                       const AttentionSetup& setup,
                       const AttentionGrads& grads,
                       BackwardScratch& s) {
  const auto width = in.q.size(3);
  const auto groups = in.q.size(1) / in.k.size(1);
  const auto padded = round_up(document.length, kKeys);
  copy_padded(rows_of(in.k, document.batch, document.kv_head, document.first),
              document.length,
              padded,
              width,
              s.keys.data());
  copy_padded(rows_of(in.v, document.batch, document.kv_head, document.first),
              document.length,
              padded,
              width,
              s.values.data());
  transpose_bf16(s.keys.data(), padded, width, s.pairs.data(), s.keys_across.data());
  std::fill_n(s.grad_keys.data(), padded * width, 0.0F);
  std::fill_n(s.grad_values.data(), padded * width, 0.0F);
  for (auto head = document.kv_head * groups; head < (document.kv_head + 1) * groups; ++head) {
    backward_head(document, head, in, setup, grads, s);
  }
  const auto grad_k = rows_of(grads.k, document.batch, document.kv_head, document.first);
  const auto grad_v = rows_of(grads.v, document.batch, document.kv_head, document.first);
  kernels::table().round_rows(
      s.grad_keys.data(), width, nullptr, grad_k.data, grad_k.stride, document.length, width);
  kernels::table().round_rows(
      s.grad_values.data(), width, nullptr, grad_v.data, grad_v.stride, document.length, width);
}

/// Calls body(document, scratch) for all documents, on as many threads as ATen has; each writes
/// rows of its own.
template <class Scratch, class Body>
void for_documents(const at::Tensor& k, const AttentionSetup& setup, const Body& body) {
  const auto documents = documents_of(k, setup);
  const auto length = longest(documents);
  at::parallel_for(
      0, static_cast<std::int64_t>(documents.size()), 1, [&](std::int64_t from, std::int64_t to) {
        Scratch scratch(length, k.size(3));
        for (auto i = from; i < to; ++i) body(documents[static_cast<std::size_t>(i)], scratch);
        at::native::cpublas::brgemm_release();
      });
}

at::Tensor last_dim_contiguous(const at::Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

}  // namespace

bool blocks_apply(const at::Tensor& q) {
  static const bool usable = multiplies_bf16();
  return usable && q.scalar_type() == at::kBFloat16 && q.size(3) % 32 == 0 && q.size(3) > 0 &&
         q.size(3) <= kMaxWidth;
}

AttentionOutput blocks_forward(const at::Tensor& q_in,
                               const at::Tensor& k_in,
                               const at::Tensor& v_in,
                               const AttentionSetup& setup) {
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  AttentionOutput result{
      at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2),
      at::empty({q.size(0), q.size(1), q.size(2)}, at::kFloat)};
  for_documents<ForwardScratch>(k, setup, [&](const Document& document, ForwardScratch& scratch) {
    forward_document(document, q, k, v, setup, result, scratch);
  });
  return result;
}

AttentionGrads blocks_backward(const at::Tensor& grad_out_in,
                               const at::Tensor& q_in,
                               const at::Tensor& k_in,
                               const at::Tensor& v_in,
                               const AttentionOutput& forward,
                               const AttentionSetup& setup) {
  const auto grad_out = last_dim_contiguous(grad_out_in);
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  const auto lse = forward.lse.contiguous();
  AttentionGrads grads{at::empty(q.sizes(), q.options()),
                       at::empty(k.sizes(), k.options()),
                       at::empty(v.sizes(), v.options())};
  const BackwardInput input{grad_out, q, k, v, forward.out, lse};
  for_documents<BackwardScratch>(k, setup, [&](const Document& document, BackwardScratch& scratch) {
    backward_document(document, input, setup, grads, scratch);
  });
  return grads;
}

}  // namespace trireme::ops
