#include "ops/attention/tiles.hpp"

#include "ops/attention/memo.hpp"

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

void forward_tile(const QueryPart& queries, std::int64_t padded, const AttentionSetup& setup,
                  ForwardScratch& s) {
  const auto width = s.query.width;
  s.maximum.fill(-std::numeric_limits<float>::infinity());
  s.total.fill(0);
  s.out.fill(0);
  for_key_tiles(queries, setup, [&](const ScoreTile& tile, std::int64_t key) {
    multiply(kKeys, kQueries, width, s.keys.data() + key * width, width, s.query.by_width.data(),
             s.scores.data(), false);
    kernels::table().softmax_tile(tile, s.scores.data(), s.maximum.data(), s.total.data(),
                                  s.weights.data(), s.out.data(), width);
    multiply(width, kQueries, kKeys, s.values_across.data() + key, padded, s.weights.data(),
             s.out.data(), true);
  });
}

/// Computes one query head and one part: writes its rows of out and lse.
void forward_part(const TileGroup& group, std::int64_t head, const QueryPart& part,
                  const at::Tensor& q, const AttentionSetup& setup, const AttentionOutput& result,
                  ForwardScratch& s) {
  const auto width = q.size(3);
  const auto padded = round_up(group.document->num_keys, kKeys);
  float* lse = result.lse.data_ptr<float>() + (group.batch * q.size(1) + head) * q.size(2);
  for (std::int64_t query = 0; query < part.tokens.length; query += kQueries) {
    const auto count = std::min(kQueries, part.tokens.length - query);
    const auto first = part.tokens.first + query;
    s.query.load(rows_of(q, group.batch, head, first), count);
    forward_tile(part.slice(query, count), padded, setup, s);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      lse[first + static_cast<std::int64_t>(i)] =
          s.maximum[i] * 0.69314718F + std::log(s.total[i]);  // the maximum is in log2 units
      s.total[i] = s.total[i] == 0 ? 0.0F : 1.0F / s.total[i];
    }
    kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(s.out.data()), kQueries,
                               reinterpret_cast<std::uint32_t*>(s.out_rows.data()), width, width,
                               kQueries);
    put_rows(s.out_rows.data(), s.total.data(), result.out, group.batch, head, {first, count});
  }
}

void forward_group(const TileGroup& group, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const AttentionSetup& setup, const AttentionOutput& result,
                   ForwardScratch& s) {
  const auto width = q.size(3);
  const auto heads = q.size(1) / k.size(1);
  const auto padded = round_up(group.document->num_keys, kKeys);
  copy_document(k, group, padded, width, s.keys.data());
  copy_document(v, group, padded, width, s.values.data());
  transpose_bf16(s.values.data(), padded, width, s.pairs.data(), s.values_across.data());
  for (auto head = group.kv_head * heads; head < (group.kv_head + 1) * heads; ++head) {
    for (const QueryPart& part : group.document->queries)
      forward_part(group, head, part, q, setup, result, s);
  }
}

}  // namespace

bool tiles_apply(const at::Tensor& q, const AttentionSetup& setup) {
  constexpr std::int64_t kFewest = 16;
  static const bool usable = multiplies_bf16();
  return usable && q.scalar_type() == at::kBFloat16 && q.size(3) % 32 == 0 && q.size(3) > 0 &&
         q.size(3) <= kMaxWidth && (setup.whole_rows() || q.size(2) >= kFewest);
}

AttentionOutput tiles_forward(const at::Tensor& q_in, const at::Tensor& k_in,
                              const at::Tensor& v_in, const AttentionSetup& setup) {
  const auto q = last_dim_contiguous(q_in);
  const auto k = last_dim_contiguous(k_in);
  const auto v = last_dim_contiguous(v_in);
  const AttentionOutput result = empty_output(q, setup);
  const auto planned = planned_attention(setup, q.size(0), q.size(2), k.size(2));
  const AttentionPlan& plan = *planned;
  for_groups<ForwardScratch>(plan, k, [&](const TileGroup& group, ForwardScratch& scratch) {
    forward_group(group, q, k, v, setup, result, scratch);
  });
  return result;
}

}  // namespace trireme::ops
