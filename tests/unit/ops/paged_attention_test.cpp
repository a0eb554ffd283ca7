#include "ops/paged_attention.hpp"

#include <ATen/Parallel.h>

#include <cmath>
#include <numeric>

#include "ops/linear.hpp"
#include "unit/ops/support.hpp"

/// Tests the operations of inference: products with few rows, and attention over blocks.
namespace trireme::ops::testing {
namespace {

constexpr std::int64_t kBlock = 16;
constexpr double kScale = 0.3;

struct Sizes {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t width;
};

/// A sequence in blocks at any place, with the keys and values of all its tokens.
struct Text {
  std::int64_t before;
  std::int64_t rows;
  at::Tensor k;  // [kv_heads, tokens, width]
  at::Tensor v;
  std::vector<std::int32_t> blocks;
};

/// Sequences with earlier tokens in a cache and next rows in a step.
struct PagedCase {
  PagedCase(const Sizes& the_sizes,
            const std::vector<std::pair<std::int64_t, std::int64_t>>& lengths,
            at::ScalarType the_dtype, std::int64_t the_window = 0)
      : sizes(the_sizes), dtype(the_dtype), window(the_window) {
    const auto options = at::TensorOptions().dtype(dtype);
    cache = make_paged_cache(64, sizes.kv_heads, sizes.width, [&options](std::int64_t count) {
      return at::empty({count}, options);
    });
    cache.keys.fill_(NAN);  // unused slots may have any value
    cache.values.fill_(NAN);
    std::int32_t block = 63;
    for (const auto& [before, rows] : lengths) {
      Text text{before, rows, {}, {}, {}};
      const std::vector<std::int64_t> shape{sizes.kv_heads, before + rows, sizes.width};
      text.k = at::randn(shape, at::kDouble).to(dtype);
      text.v = at::randn(shape, at::kDouble).to(dtype);
      for (std::int64_t at = 0; at < before + rows; at += kBlock) text.blocks.push_back(block--);
      texts.push_back(text);
    }
  }

  [[nodiscard]] PagedPlan plan(bool earlier) const {
    std::vector<PagedSequence> list;
    std::int64_t row = 0;
    for (const Text& text : texts) {
      const std::int64_t rows = earlier ? text.before : text.rows;
      if (rows == 0) continue;
      list.push_back({row, rows, earlier ? 0 : text.before, text.blocks});
      row += rows;
    }
    return plan_paged(std::move(list), at::kCPU, {.window = window});
  }

  /// Returns the values [1, kv_heads, rows, width] of the step's rows, or of the tokens before.
  [[nodiscard]] at::Tensor rows_of(at::Tensor Text::*numbers, bool earlier) const {
    std::vector<at::Tensor> parts;
    for (const Text& text : texts) {
      parts.push_back(
          (text.*numbers).narrow(1, earlier ? 0 : text.before, earlier ? text.before : text.rows));
    }
    return at::cat(parts, 1).unsqueeze(0);
  }

  void store(Path path) const {
    for (const bool earlier : {true, false}) {
      const PagedPlan rows = plan(earlier);
      if (rows.num_rows > 0)
        paged_store(rows_of(&Text::k, earlier), rows_of(&Text::v, earlier), rows, cache, path);
    }
  }

  [[nodiscard]] at::Tensor queries() const {
    return at::randn({1, sizes.heads, plan(false).num_rows, sizes.width}, at::kDouble).to(dtype);
  }

  /// Computes the attention by its definition, in fp64.
  [[nodiscard]] at::Tensor expected(const at::Tensor& q, double softcap = 0) const {
    std::vector<at::Tensor> rows;
    std::int64_t row = 0;
    const std::int64_t group = sizes.heads / sizes.kv_heads;
    for (const Text& text : texts) {
      for (std::int64_t i = 0; i < text.rows; ++i, ++row) {
        const std::int64_t end = text.before + i + 1;
        const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(end - window, 0);
        const at::Tensor keys =
            text.k.narrow(1, first, end - first).to(at::kDouble).repeat_interleave(group, 0);
        const at::Tensor values =
            text.v.narrow(1, first, end - first).to(at::kDouble).repeat_interleave(group, 0);
        const at::Tensor one = q.select(0, 0).select(1, row).to(at::kDouble).unsqueeze(1);
        at::Tensor scores = one.matmul(keys.transpose(1, 2)).mul(kScale);
        if (softcap > 0) scores = at::tanh(scores / softcap) * softcap;
        const at::Tensor weights = scores.softmax(-1);
        rows.push_back(weights.matmul(values).flatten());
      }
    }
    return at::stack(rows);
  }

  Sizes sizes;
  at::ScalarType dtype;
  std::int64_t window;
  PagedCache cache;
  std::vector<Text> texts;
};

const std::vector<std::pair<std::int64_t, std::int64_t>> kMixed{
    {0, 1}, {40, 1}, {0, 37}, {15, 1}, {16, 1}, {20, 30}, {100, 1}, {31, 2}};

TEST(PagedAttention, IsAttentionOfEachTextToItself) {
  at::set_num_threads(1);
  at::manual_seed(2);
  for (const Case& c : rounding_cases()) {
    for (const Sizes& sizes : {Sizes{4, 2, 32}, Sizes{6, 6, 16}, Sizes{8, 1, 96}, Sizes{4, 2, 6}}) {
      const PagedCase paged(sizes, kMixed, c.dtype);
      paged.store(c.path);
      const at::Tensor q = paged.queries();
      expect_close(paged_attention(q, paged.plan(false), paged.cache, kScale, c.path),
                   paged.expected(q), c.tolerance, name(c));
      expect_close(paged_attention(q, paged.plan(false), paged.cache, kScale, c.path, 0.4),
                   paged.expected(q, 0.4), c.tolerance, name(c) + " with a soft-cap");
    }
  }
}

TEST(PagedAttention, AWindowHidesEarlierTokens) {
  at::set_num_threads(1);
  at::manual_seed(8);
  for (const Case& c : rounding_cases()) {
    for (const std::int64_t window : {1, 5, 16, 33, 1000}) {
      for (const Sizes& sizes : {Sizes{4, 2, 32}, Sizes{8, 1, 96}, Sizes{4, 2, 6}}) {
        const PagedCase paged(sizes, kMixed, c.dtype, window);
        paged.store(c.path);
        const at::Tensor q = paged.queries();
        expect_close(paged_attention(q, paged.plan(false), paged.cache, kScale, c.path),
                     paged.expected(q), c.tolerance, name(c) + " window " + std::to_string(window));
      }
    }
  }
}

TEST(PagedAttention, ARowHasTheSameBitsWhateverElseThereIs) {
  at::manual_seed(3);
  for (const auto& [dtype, window] :
       {std::pair{at::kFloat, 0}, std::pair{at::kBFloat16, 0}, std::pair{at::kBFloat16, 21}}) {
    const PagedCase paged({8, 4, 48}, kMixed, dtype, window);
    paged.store(Path::fast);
    const at::Tensor q = paged.queries();
    const PagedPlan plan = paged.plan(false);
    const at::Tensor together = paged_attention(q, plan, paged.cache, kScale);
    for (const PagedSequence& text : plan.texts) {
      for (std::int64_t row = 0; row < text.num_rows; ++row) {
        const PagedPlan one =
            plan_paged({{0, 1, text.before + row, text.blocks}}, at::kCPU, {.window = window});
        const at::Tensor alone =
            paged_attention(q.narrow(2, text.first_row + row, 1), one, paged.cache, kScale);
        EXPECT_TRUE(alone.equal(together.narrow(0, text.first_row + row, 1)));
      }
    }
  }
}

TEST(PagedAttention, ThreadsDoNotChangeABit) {
  at::manual_seed(4);
  const PagedCase paged({8, 4, 32}, kMixed, at::kFloat);
  const at::Tensor q = paged.queries();
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    paged.store(Path::fast);
    results.push_back(paged_attention(q, paged.plan(false), paged.cache, kScale));
  }
  at::set_num_threads(1);
  EXPECT_TRUE(results[0].equal(results[1]));
}

TEST(InferenceLinear, IsTheProduct) {
  at::manual_seed(5);
  for (const Case& c : rounding_cases()) {
    for (const std::int64_t in : {1, 7, 16, 96, 100, 129}) {
      for (const std::int64_t out : {1, 3, 4, 8, 77}) {
        for (const std::int64_t rows : {0, 1, 2, 3, 4, 7, 50}) {
          const at::Tensor x = at::randn({rows, in}, at::kDouble).to(c.dtype);
          const at::Tensor w = at::randn({out, in}, at::kDouble).to(c.dtype);
          const at::Tensor expected = x.to(at::kDouble).matmul(w.to(at::kDouble).t());
          expect_close(inference_linear(x, w, c.path), expected, c.tolerance, name(c));
          const at::Tensor wide = inference_linear_wide(x, w, c.path);
          EXPECT_EQ(wide.scalar_type(), c.dtype == at::kDouble ? at::kDouble : at::kFloat);
          // The kernels round only the sums, which have at most 129 terms.
          const bool kernel = c.path == Path::fast && c.dtype == at::kBFloat16;
          expect_close(wide, expected, kernel ? 4e-6 : c.tolerance, name(c) + " wide");
        }
      }
    }
  }
}

TEST(InferenceLinear, ARowHasTheSameBitsWhateverElseThereIs) {
  at::manual_seed(6);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t in : {96, 100}) {
      const at::Tensor x = at::randn({131, in}).to(dtype);
      const at::Tensor w = at::randn({45, in}).to(dtype);
      const at::Tensor all = inference_linear(x, w);
      for (const std::int64_t count : {1, 2, 3, 5, 48, 49, 100}) {
        const std::int64_t first = 131 - count;
        EXPECT_TRUE(
            inference_linear(x.narrow(0, first, count), w).equal(all.narrow(0, first, count)))
            << count << " rows";
      }
      at::set_num_threads(2);
      EXPECT_TRUE(inference_linear(x, w).equal(all)) << "threads";
      at::set_num_threads(1);
    }
  }
}

TEST(InferenceLinear, TakesColumnsOfALargerTensor) {
  at::manual_seed(7);
  const at::Tensor whole = at::randn({5, 64});
  const at::Tensor x = whole.narrow(1, 16, 32);
  const at::Tensor w = at::randn({9, 32});
  EXPECT_TRUE(inference_linear(x, w).equal(inference_linear(x.contiguous(), w)));
  expect_close(inference_linear(x.t().contiguous().t(), w),
               x.to(at::kDouble).matmul(w.to(at::kDouble).t()), 4e-6, "columns");
}

}  // namespace
}  // namespace trireme::ops::testing
