#include "ops/attention_tiles.hpp"

#include "ops/attention_tile_parts.hpp"

namespace trireme::ops {
namespace {

using namespace tiles;

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

void forward_tile(const Document& document, std::int64_t query, std::int64_t padded,
                  const AttentionSetup& setup, ForwardScratch& s) {
  const auto width = s.query.width;
  s.maximum.fill(-std::numeric_limits<float>::infinity());
  s.total.fill(0);
  s.out.fill(0);
  const auto limit = key_limit(document, query, setup);
  for (std::int64_t key = 0; key < limit; key += kKeys) {
    multiply(kKeys, kQueries, width, s.keys.data() + key * width, width, s.query.by_width.data(),
             s.scores.data(), false);
    kernels::table().softmax_tile(tile_at(document, query, key, setup), s.scores.data(),
                                  s.maximum.data(), s.total.data(), s.weights.data(), s.out.data(),
                                  width);
    multiply(width, kQueries, kKeys, s.values_across.data() + key, padded, s.weights.data(),
             s.out.data(), true);
  }
}

void forward_document(const Document& document, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v, const AttentionSetup& setup,
                      const AttentionOutput& result, ForwardScratch& s) {
  const auto width = q.size(3);
  const auto groups = q.size(1) / k.size(1);
  const auto padded = round_up(document.length, kKeys);
  copy_padded(rows_of(k, document.batch, document.kv_head, document.first), document.length, padded,
              width, s.keys.data());
  copy_padded(rows_of(v, document.batch, document.kv_head, document.first), document.length, padded,
              width, s.values.data());
  transpose_bf16(s.values.data(), padded, width, s.pairs.data(), s.values_across.data());
  for (auto head = document.kv_head * groups; head < (document.kv_head + 1) * groups; ++head) {
    float* lse = result.lse.data_ptr<float>() + (document.batch * q.size(1) + head) * q.size(2) +
                 document.first;
    for (std::int64_t query = 0; query < document.length; query += kQueries) {
      const auto count = std::min(kQueries, document.length - query);
      s.query.load(rows_of(q, document.batch, head, document.first + query), count);
      forward_tile(document, query, padded, setup, s);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        lse[query + static_cast<std::int64_t>(i)] =
            s.maximum[i] * 0.69314718F + std::log(s.total[i]);  // the maximum is in log2 units
        s.total[i] = 1.0F / s.total[i];
      }
      kernels::table().transpose(reinterpret_cast<const std::uint32_t*>(s.out.data()), kQueries,
                                 reinterpret_cast<std::uint32_t*>(s.out_rows.data()), width, width,
                                 kQueries);
      const auto out = rows_of(result.out, document.batch, head, document.first + query);
      kernels::table().round_rows(s.out_rows.data(), width, s.total.data(), out.data, out.stride,
                                  count, width);
    }
  }
}

}  // namespace

bool tiles_apply(const at::Tensor& q) {
  static const bool usable = multiplies_bf16();
  return usable && q.scalar_type() == at::kBFloat16 && q.size(3) % 32 == 0 && q.size(3) > 0 &&
         q.size(3) <= kMaxWidth;
}

AttentionOutput tiles_forward(const at::Tensor& q_in, const at::Tensor& k_in,
                              const at::Tensor& v_in, const AttentionSetup& setup) {
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

}  // namespace trireme::ops
