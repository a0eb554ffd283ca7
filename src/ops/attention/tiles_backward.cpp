#include "ops/attention/tiles.hpp"

namespace trireme::ops {
namespace {

using namespace tiles;

template <class T>
struct BackwardScratch {
  static constexpr bool kHasPairs = std::is_same_v<T, Bits>;

  BackwardScratch(std::int64_t length, std::int64_t width)
      : keys(length * width),
        values(length * width),
        keys_across(length * width),
        pairs(kHasPairs ? length * width : 0),
        grad_keys(length * width),
        grad_values(length * width),
        head_keys(length * width),
        head_values(length * width),
        query(width),
        grad_out(width),
        scores(kKeys * kQueries),
        grad_weights(kKeys * kQueries),
        weights(kKeys * kQueries),
        grad_scores(kKeys * kQueries),
        grad_scores_pairs(kHasPairs ? kKeys * kQueries : 0),
        grad_query(width * kQueries),
        grad_query_rows(width * kQueries) {}

  Buffer<T> keys;         // [length, D]
  Buffer<T> values;       // [length, D]
  Buffer<T> keys_across;  // [D, length]
  Buffer<T> pairs;
  Buffer<float> grad_keys;    // [length, D], over the heads of the group
  Buffer<float> grad_values;  // [length, D]
  Buffer<float> head_keys;    // [length, D], of one later head
  Buffer<float> head_values;  // [length, D]
  float* to_keys = nullptr;   // the buffers of the current head
  float* to_values = nullptr;
  QueryPack<T> query;
  QueryPack<T> grad_out;
  Buffer<float> scores;        // [keys, queries]
  Buffer<float> grad_weights;  // [keys, queries]
  Buffer<T> weights;           // [keys, queries]
  Buffer<T> grad_scores;       // [keys, queries]
  Buffer<Bits> grad_scores_pairs;
  Buffer<float> grad_query;       // [D, queries]
  Buffer<float> grad_query_rows;  // [queries, D]
  std::array<float, kQueries> lse{};
  std::array<float, kQueries> along{};
};

/// Computes weights and grad_scores. Returns grad_scores in the layout of a second factor.
const Bits* softmax_tile_backward(const ScoreTile& tile, BackwardScratch<Bits>& s) {
  kernels::table().softmax_tile_backward(tile, s.scores.data(), s.grad_weights.data(), s.lse.data(),
                                         s.along.data(), s.weights.data(), s.grad_scores.data(),
                                         s.grad_scores_pairs.data());
  return s.grad_scores_pairs.data();
}

const float* softmax_tile_backward(const ScoreTile& tile, BackwardScratch<float>& s) {
  kernels::table().softmax_tile_backward_f32(tile, s.scores.data(), s.grad_weights.data(),
                                             s.lse.data(), s.along.data(), s.weights.data(),
                                             s.grad_scores.data(), nullptr);
  return s.grad_scores.data();
}

template <class T>
void backward_tile(const QueryTile& queries, std::int64_t padded, const AttentionSetup& setup,
                   BackwardScratch<T>& s) {
  const auto width = s.query.width;
  bool add = false;
  for_key_tiles(queries, setup, [&](const ScoreTile& tile, std::int64_t key) {
    multiply(kKeys, kQueries, width, s.keys.data() + key * width, width, s.query.by_width.data(),
             s.scores.data(), false);
    multiply(kKeys, kQueries, width, s.values.data() + key * width, width,
             s.grad_out.by_width.data(), s.grad_weights.data(), false);
    const T* grad_scores = softmax_tile_backward(tile, s);
    multiply(kKeys, width, kQueries, s.weights.data(), kQueries, s.grad_out.by_query(),
             s.to_values + key * width, true);
    multiply(kKeys, width, kQueries, s.grad_scores.data(), kQueries, s.query.by_query(),
             s.to_keys + key * width, true);
    multiply(width, kQueries, kKeys, s.keys_across.data() + key, padded, grad_scores,
             s.grad_query.data(), add);
    add = true;
  });
  if (!add) s.grad_query.fill(0);
}

struct BackwardInput {
  const at::Tensor& grad_out;
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const at::Tensor& out;
  const at::Tensor& lse;
};

/// Writes the products of rows of grad_out and out.
void multiply_rows(const Rows& grad_out, const Rows& out, std::int64_t count, std::int64_t width,
                   float* products) {
  if (grad_out.are_bf16()) {
    kernels::table().row_products(grad_out.at<Bits>(0), grad_out.stride, out.at<Bits>(0),
                                  out.stride, products, count, width);
  } else {
    kernels::table().row_products_f32(grad_out.at<float>(0), grad_out.stride, out.at<float>(0),
                                      out.stride, products, count, width);
  }
}

/// Processes one query head and one tile of queries: adds to the head's gradients of keys and values
/// in the scratch and writes the tile's rows of grads.q.
template <class T>
void backward_queries(const TileGroup& group, std::int64_t head, const QueryTile& tile,
                      const BackwardInput& in, const AttentionSetup& setup,
                      const AttentionGrads& grads, BackwardScratch<T>& s) {
  const auto width = in.q.size(3);
  const float* lse = in.lse.data_ptr<float>() + (group.batch * in.q.size(1) + head) * in.q.size(2);
  s.query.load(in.q, group.batch, head, tile);
  s.query.pack_by_query();
  s.grad_out.load(in.grad_out, group.batch, head, tile);
  s.grad_out.pack_by_query();
  // Columns without a query are rows of zeros; with finite weights they add zeros to the sums.
  s.lse.fill(0);
  s.along.fill(0);
  for_ranges(tile, [&](std::int64_t column, const TokenRange& range) {
    std::copy_n(lse + range.first, range.length, s.lse.data() + column);
    multiply_rows(rows_of(in.grad_out, group.batch, head, range.first),
                  rows_of(in.out, group.batch, head, range.first), range.length, width,
                  s.along.data() + column);
  });
  backward_tile(tile, round_up(group.bundle->num_keys, kKeys), setup, s);
  transpose_words(s.grad_query.data(), width, kQueries, s.grad_query_rows.data());
  for_ranges(tile, [&](std::int64_t column, const TokenRange& range) {
    put_rows(s.grad_query_rows.data() + column * width, nullptr, grads.q, group.batch, head, range);
  });
}

/// Writes the gradients of keys and values to the head `target` of grads.k and grads.v.
template <class T>
void backward_group(const TileGroup& group, const BackwardInput& in, const AttentionSetup& setup,
                    const AttentionGrads& grads, std::int64_t target, BackwardScratch<T>& s) {
  const auto width = in.q.size(3);
  const auto padded = round_up(group.bundle->num_keys, kKeys);
  copy_keys(in.k, group, padded, width, s.keys.data());
  copy_keys(in.v, group, padded, width, s.values.data());
  transpose_rows(s.keys.data(), padded, width, s.pairs.data(), s.keys_across.data());
  for (auto head = group.first_head; head < group.end_head; ++head) {
    const bool is_first = head == group.first_head;
    s.to_keys = is_first ? s.grad_keys.data() : s.head_keys.data();
    s.to_values = is_first ? s.grad_values.data() : s.head_values.data();
    std::fill_n(s.to_keys, padded * width, 0.0F);
    std::fill_n(s.to_values, padded * width, 0.0F);
    for (const QueryTile& tile : group.bundle->tiles)
      backward_queries(group, head, tile, in, setup, grads, s);
    if (is_first) continue;
    // Each head is summed alone first, so that the bits are those of divided heads.
    for (std::int64_t i = 0; i < padded * width; ++i) {
      s.grad_keys.data()[i] += s.to_keys[i];
      s.grad_values.data()[i] += s.to_values[i];
    }
  }
  std::int64_t first = 0;
  for (const TokenRange& range : group.bundle->keys) {
    put_rows(s.grad_keys.data() + first * width, nullptr, grads.k, group.batch, target, range);
    put_rows(s.grad_values.data() + first * width, nullptr, grads.v, group.batch, target, range);
    first += range.length;
  }
}

/// Sums gradients [B, H, T, D] in fp32 over `shared` query heads each, in the order of the heads.
at::Tensor sum_heads(const at::Tensor& grad, std::int64_t shared, at::ScalarType type) {
  const at::Tensor heads = grad.unflatten(1, {-1, shared});  // [B, Hk, shared, T, D]
  at::Tensor sum = heads.select(2, 0).clone();
  for (std::int64_t head = 1; head < shared; ++head) sum.add_(heads.select(2, head));
  return sum.to(type);
}

template <class T>
AttentionGrads backward(const at::Tensor& grad_out_in, const at::Tensor& q_in,
                        const at::Tensor& k_in, const at::Tensor& v_in,
                        const AttentionOutput& forward, const AttentionSetup& setup) {
  const auto grad_out = last_dim_contiguous(grad_out_in);
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  const auto out = last_dim_contiguous(forward.out);
  const auto lse = forward.lse.contiguous();
  const auto type = result_type(q, setup);
  const TileWork work(setup, q, k);
  AttentionGrads grads;
  grads.q = at::empty(q.sizes(), q.options().dtype(type));
  // If heads are divided, each query head has its own gradients of keys and values.
  const auto space = [&](const at::Tensor& x) {
    if (!work.divides_heads) return at::empty(x.sizes(), x.options().dtype(type));
    return at::empty({x.size(0), q.size(1), x.size(2), x.size(3)}, x.options().dtype(at::kFloat));
  };
  grads.k = space(k);
  grads.v = space(v);
  const BackwardInput input{grad_out, q, k, v, out, lse};
  for_groups<BackwardScratch<T>>(
      work, q.size(3), [&](const TileGroup& group, BackwardScratch<T>& scratch) {
        const auto target = work.divides_heads ? group.first_head : group.kv_head;
        backward_group(group, input, setup, grads, target, scratch);
      });
  if (work.divides_heads) {
    grads.k = sum_heads(grads.k, work.shared, type);
    grads.v = sum_heads(grads.v, work.shared, type);
  }
  return grads;
}

}  // namespace

AttentionGrads tiles_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup) {
  return backward<Bits>(grad_out, q, k, v, forward, setup);
}

AttentionGrads fp32_tiles_backward(const at::Tensor& grad_out, const at::Tensor& q,
                                   const at::Tensor& k, const at::Tensor& v,
                                   const AttentionOutput& forward, const AttentionSetup& setup) {
  return backward<float>(grad_out, q, k, v, forward, setup);
}

}  // namespace trireme::ops
