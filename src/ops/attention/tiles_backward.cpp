#include "ops/attention/memo.hpp"
#include "ops/attention/tiles.hpp"

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

void backward_tile(const QueryPart& queries, std::int64_t padded, const AttentionSetup& setup,
                   BackwardScratch& s) {
  const auto width = s.query.width;
  if (queries.sees_no_key()) s.grad_query.fill(0);
  bool add = false;
  for_key_tiles(queries, setup, [&](const ScoreTile& tile, std::int64_t key) {
    multiply(kKeys, kQueries, width, s.keys.data() + key * width, width, s.query.by_width.data(),
             s.scores.data(), false);
    multiply(kKeys, kQueries, width, s.values.data() + key * width, width,
             s.grad_out.by_width.data(), s.grad_weights.data(), false);
    kernels::table().softmax_tile_backward(tile, s.scores.data(), s.grad_weights.data(),
                                           s.lse.data(), s.along.data(), s.weights.data(),
                                           s.grad_scores.data(), s.grad_scores_pairs.data());
    multiply(kKeys, width, kQueries, s.weights.data(), kQueries, s.grad_out.by_query.data(),
             s.grad_values.data() + key * width, true);
    multiply(kKeys, width, kQueries, s.grad_scores.data(), kQueries, s.query.by_query.data(),
             s.grad_keys.data() + key * width, true);
    multiply(width, kQueries, kKeys, s.keys_across.data() + key, padded, s.grad_scores_pairs.data(),
             s.grad_query.data(), add);
    add = true;
  });
}

struct BackwardInput {
  const at::Tensor& grad_out;
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const at::Tensor& out;
  const at::Tensor& lse;
};

/// Processes one query head and one part: adds to grad_keys and grad_values of the scratch and
/// writes the part's rows of grads.q.
void backward_part(const TileGroup& group, std::int64_t head, const QueryPart& part,
                   const BackwardInput& in, const AttentionSetup& setup,
                   const AttentionGrads& grads, BackwardScratch& s) {
  const auto width = in.q.size(3);
  const auto padded = round_up(group.document->num_keys, kKeys);
  const float* lse = in.lse.data_ptr<float>() + (group.batch * in.q.size(1) + head) * in.q.size(2);
  for (std::int64_t query = 0; query < part.tokens.length; query += kQueries) {
    const auto count = std::min(kQueries, part.tokens.length - query);
    const auto first = part.tokens.first + query;
    const auto grad_rows = rows_of(in.grad_out, group.batch, head, first);
    const auto out_rows = rows_of(in.out, group.batch, head, first);
    s.query.load(rows_of(in.q, group.batch, head, first), count);
    s.query.pack_by_query();
    s.grad_out.load(grad_rows, count);
    s.grad_out.pack_by_query();
    // Padding queries are rows of zeros; with finite weights they add zeros to the sums.
    s.lse.fill(0);
    s.along.fill(0);
    std::copy_n(lse + first, count, s.lse.data());
    kernels::table().row_products(grad_rows.data, grad_rows.stride, out_rows.data, out_rows.stride,
                                  s.along.data(), count, width);
    backward_tile(part.slice(query, count), padded, setup, s);
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(s.grad_query.data()),
                               kQueries, reinterpret_cast<std::uint32_t*>(s.grad_query_rows.data()),
                               width, width, kQueries);
    put_rows(s.grad_query_rows.data(), nullptr, grads.q, group.batch, head, {first, count});
  }
}

void backward_group(const TileGroup& group, const BackwardInput& in, const AttentionSetup& setup,
                    const AttentionGrads& grads, BackwardScratch& s) {
  const auto width = in.q.size(3);
  const auto heads = in.q.size(1) / in.k.size(1);
  const auto padded = round_up(group.document->num_keys, kKeys);
  copy_document(in.k, group, padded, width, s.keys.data());
  copy_document(in.v, group, padded, width, s.values.data());
  transpose_bf16(s.keys.data(), padded, width, s.pairs.data(), s.keys_across.data());
  std::fill_n(s.grad_keys.data(), padded * width, 0.0F);
  std::fill_n(s.grad_values.data(), padded * width, 0.0F);
  for (auto head = group.kv_head * heads; head < (group.kv_head + 1) * heads; ++head) {
    for (const QueryPart& part : group.document->queries)
      backward_part(group, head, part, in, setup, grads, s);
  }
  std::int64_t first = 0;
  for (const TokenRange& range : group.document->keys) {
    put_rows(s.grad_keys.data() + first * width, nullptr, grads.k, group.batch, group.kv_head,
             range);
    put_rows(s.grad_values.data() + first * width, nullptr, grads.v, group.batch, group.kv_head,
             range);
    first += range.length;
  }
}

}  // namespace

AttentionGrads tiles_backward(const at::Tensor& grad_out_in, const at::Tensor& q_in,
                              const at::Tensor& k_in, const at::Tensor& v_in,
                              const AttentionOutput& forward, const AttentionSetup& setup) {
  const auto grad_out = last_dim_contiguous(grad_out_in);
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  const auto out = last_dim_contiguous(forward.out);
  const auto lse = forward.lse.contiguous();
  const auto space = [&](const at::Tensor& x) {
    return at::empty(x.sizes(), x.options().dtype(result_type(x, setup)));
  };
  AttentionGrads grads{space(q), space(k), space(v)};
  const BackwardInput input{grad_out, q, k, v, out, lse};
  const auto planned = planned_attention(setup, q.size(0), q.size(2), k.size(2));
  const AttentionPlan& plan = *planned;
  for_groups<BackwardScratch>(plan, k, [&](const TileGroup& group, BackwardScratch& scratch) {
    backward_group(group, input, setup, grads, scratch);
  });
  return grads;
}

}  // namespace trireme::ops
