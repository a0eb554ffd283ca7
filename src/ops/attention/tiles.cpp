#include "ops/attention/tiles.hpp"

#include <type_traits>

#include "ops/product.hpp"

namespace trireme::ops {
namespace {

using namespace tiles;

bool multiplies_bf16() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  try {  // oneDNN may be configured to use fewer instructions than the CPU has
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

void softmax_tile(const ScoreTile& tile, const float* scores, float* maximum, float* total,
                  Bits* weights, float* out, std::int64_t width) {
  kernels::table().softmax_tile(tile, scores, maximum, total, weights, out, width);
}

void softmax_tile(const ScoreTile& tile, const float* scores, float* maximum, float* total,
                  float* weights, float* out, std::int64_t width) {
  kernels::table().softmax_tile_f32(tile, scores, maximum, total, weights, out, width);
}

template <class T>
struct ForwardScratch {
  static constexpr bool kHasPairs = std::is_same_v<T, Bits>;

  ForwardScratch(std::int64_t length, std::int64_t width)
      : keys(length * width),
        values(length * width),
        values_across(length * width),
        pairs(kHasPairs ? length * width : 0),
        query(width),
        scores(kKeys * kQueries),
        weights(kKeys * kQueries),
        out(width * kQueries),
        out_rows(width * kQueries) {}

  Buffer<T> keys;           // [length, D]
  Buffer<T> values;         // [length, D]
  Buffer<T> values_across;  // [D, length]
  Buffer<T> pairs;
  QueryPack<T> query;
  Buffer<float> scores;    // [keys, queries]
  Buffer<T> weights;       // [keys, queries], bf16 in pairs of keys
  Buffer<float> out;       // [D, queries]
  Buffer<float> out_rows;  // [queries, D]
  std::array<float, kQueries> maximum{};
  std::array<float, kQueries> total{};
};

template <class T>
void forward_tile(const QueryTile& queries, std::int64_t padded, const AttentionSetup& setup,
                  ForwardScratch<T>& s) {
  const auto width = s.query.width;
  s.maximum.fill(-std::numeric_limits<float>::infinity());
  s.total.fill(0);
  s.out.fill(0);
  for_key_tiles(queries, setup, [&](const ScoreTile& tile, std::int64_t key) {
    multiply(kKeys, kQueries, width, s.keys.data() + key * width, width, s.query.by_width.data(),
             s.scores.data(), false);
    softmax_tile(tile, s.scores.data(), s.maximum.data(), s.total.data(), s.weights.data(),
                 s.out.data(), width);
    multiply(width, kQueries, kKeys, s.values_across.data() + key, padded, s.weights.data(),
             s.out.data(), true);
  });
}

/// Computes one query head and one tile of queries: writes its rows of out and lse.
template <class T>
void forward_queries(const TileGroup& group, std::int64_t head, const QueryTile& tile,
                     const at::Tensor& q, const AttentionSetup& setup,
                     const AttentionOutput& result, ForwardScratch<T>& s) {
  const auto width = q.size(3);
  float* lse = result.lse.data_ptr<float>() + (group.batch * q.size(1) + head) * q.size(2);
  s.query.load(q, group.batch, head, tile);
  forward_tile(tile, round_up(group.bundle->num_keys, kKeys), setup, s);
  std::array<float, kQueries> of_query;
  for (std::size_t i = 0; i < kQueries; ++i) {
    of_query[i] = s.maximum[i] * 0.69314718F + std::log(s.total[i]);  // maximum is in log2 units
    s.total[i] = s.total[i] == 0 ? 0.0F : 1.0F / s.total[i];
  }
  transpose_words(s.out.data(), width, kQueries, s.out_rows.data());
  for_ranges(tile, [&](std::int64_t column, const TokenRange& range) {
    std::copy_n(of_query.data() + column, range.length, lse + range.first);
    put_rows(s.out_rows.data() + column * width, s.total.data() + column, result.out, group.batch,
             head, range);
  });
}

template <class T>
void forward_group(const TileGroup& group, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const AttentionSetup& setup, const AttentionOutput& result,
                   ForwardScratch<T>& s) {
  const auto width = q.size(3);
  const auto padded = round_up(group.bundle->num_keys, kKeys);
  copy_keys(k, group, padded, width, s.keys.data());
  copy_keys(v, group, padded, width, s.values.data());
  transpose_rows(s.values.data(), padded, width, s.pairs.data(), s.values_across.data());
  for (auto head = group.first_head; head < group.end_head; ++head) {
    for (const QueryTile& tile : group.bundle->tiles)
      forward_queries(group, head, tile, q, setup, result, s);
  }
}

template <class T>
AttentionOutput forward(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                        const AttentionSetup& setup) {
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  const AttentionOutput result = empty_output(q, setup);
  for_groups<ForwardScratch<T>>(TileWork(setup, q, k), q.size(3),
                                [&](const TileGroup& group, ForwardScratch<T>& scratch) {
                                  forward_group(group, q, k, v, setup, result, scratch);
                                });
  return result;
}

}  // namespace

bool tiles_apply(const at::Tensor& q, const AttentionSetup& setup) {
  static const bool usable = multiplies_bf16();
  return usable && q.scalar_type() == at::kBFloat16 && fits_tiles<Bits>(q, setup);
}

bool fp32_tiles_apply(const at::Tensor& q, const AttentionSetup& setup) {
  // Other CPUs were not measured: oneDNN has no fast small matmul for some of them.
  const bool usable = kernels::table().panel_products != nullptr;
  const bool computes_fp32 =
      q.scalar_type() == at::kFloat || (q.scalar_type() == at::kBFloat16 && widens_products(q));
  return usable && computes_fp32 && fits_tiles<float>(q, setup);
}

AttentionOutput tiles_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup) {
  return forward<Bits>(q, k, v, setup);
}

AttentionOutput fp32_tiles_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const AttentionSetup& setup) {
  return forward<float>(q, k, v, setup);
}

}  // namespace trireme::ops
