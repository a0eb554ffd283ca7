#include "ops/attention_tile_parts.hpp"
#include "ops/attention_tiles.hpp"

namespace trireme::ops {
namespace {

using namespace tiles;

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

void backward_tile(const Document& document, std::int64_t query, std::int64_t padded,
                   const AttentionSetup& setup, BackwardScratch& s) {
  const auto width = s.query.width;
  const auto limit = key_limit(document, query, setup);
  for (std::int64_t key = 0; key < limit; key += kKeys) {
    multiply(kKeys, kQueries, width, s.keys.data() + key * width, width, s.query.by_width.data(),
             s.scores.data(), false);
    multiply(kKeys, kQueries, width, s.values.data() + key * width, width,
             s.grad_out.by_width.data(), s.grad_weights.data(), false);
    kernels::table().softmax_tile_backward(
        tile_at(document, query, key, setup), s.scores.data(), s.grad_weights.data(), s.lse.data(),
        s.along.data(), s.weights.data(), s.grad_scores.data(), s.grad_scores_pairs.data());
    multiply(kKeys, width, kQueries, s.weights.data(), kQueries, s.grad_out.by_query.data(),
             s.grad_values.data() + key * width, true);
    multiply(kKeys, width, kQueries, s.grad_scores.data(), kQueries, s.query.by_query.data(),
             s.grad_keys.data() + key * width, true);
    multiply(width, kQueries, kKeys, s.keys_across.data() + key, padded, s.grad_scores_pairs.data(),
             s.grad_query.data(), key > 0);
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
void backward_head(const Document& document, std::int64_t head, const BackwardInput& in,
                   const AttentionSetup& setup, const AttentionGrads& grads, BackwardScratch& s) {
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
    kernels::table().row_products(grad_rows.data, grad_rows.stride, out_rows.data, out_rows.stride,
                                  s.along.data(), count, width);
    backward_tile(document, query, padded, setup, s);
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(s.grad_query.data()),
                               kQueries, reinterpret_cast<std::uint32_t*>(s.grad_query_rows.data()),
                               width, width, kQueries);
    const auto grad_q = rows_of(grads.q, document.batch, head, first);
    kernels::table().round_rows(s.grad_query_rows.data(), width, nullptr, grad_q.data,
                                grad_q.stride, count, width);
  }
}

void backward_document(const Document& document, const BackwardInput& in,
                       const AttentionSetup& setup, const AttentionGrads& grads,
                       BackwardScratch& s) {
  const auto width = in.q.size(3);
  const auto groups = in.q.size(1) / in.k.size(1);
  const auto padded = round_up(document.length, kKeys);
  copy_padded(rows_of(in.k, document.batch, document.kv_head, document.first), document.length,
              padded, width, s.keys.data());
  copy_padded(rows_of(in.v, document.batch, document.kv_head, document.first), document.length,
              padded, width, s.values.data());
  transpose_bf16(s.keys.data(), padded, width, s.pairs.data(), s.keys_across.data());
  std::fill_n(s.grad_keys.data(), padded * width, 0.0F);
  std::fill_n(s.grad_values.data(), padded * width, 0.0F);
  for (auto head = document.kv_head * groups; head < (document.kv_head + 1) * groups; ++head) {
    backward_head(document, head, in, setup, grads, s);
  }
  const auto grad_k = rows_of(grads.k, document.batch, document.kv_head, document.first);
  const auto grad_v = rows_of(grads.v, document.batch, document.kv_head, document.first);
  kernels::table().round_rows(s.grad_keys.data(), width, nullptr, grad_k.data, grad_k.stride,
                              document.length, width);
  kernels::table().round_rows(s.grad_values.data(), width, nullptr, grad_v.data, grad_v.stride,
                              document.length, width);
}

}  // namespace

AttentionGrads tiles_backward(const at::Tensor& grad_out_in, const at::Tensor& q_in,
                              const at::Tensor& k_in, const at::Tensor& v_in,
                              const AttentionOutput& forward, const AttentionSetup& setup) {
  const auto grad_out = last_dim_contiguous(grad_out_in);
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  const auto lse = forward.lse.contiguous();
  AttentionGrads grads{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                       at::empty(v.sizes(), v.options())};
  const BackwardInput input{grad_out, q, k, v, forward.out, lse};
  for_documents<BackwardScratch>(k, setup, [&](const Document& document, BackwardScratch& scratch) {
    backward_document(document, input, setup, grads, scratch);
  });
  return grads;
}

}  // namespace trireme::ops
