#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/key_interval.hpp"
#include "ops/path.hpp"

/// Attention of texts that grow, over keys and values in blocks of kBlockTokens tokens, which texts
/// may share. Source: Kwon et al., "PagedAttention", SOSP 2023.
namespace trireme::ops {

/// Rows [first_row, first_row + num_rows) of a step are the tokens before, before + 1, .. of a text.
struct PagedText {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t before = 0;           // its tokens that are in the cache already
  std::vector<std::int32_t> blocks;  // of all its tokens, these rows' too, in order
};

/// The blocks of one layer, those of one head side by side: a text whose blocks are in order is read as
/// one stream. w: kernels::in_block_word. Unused places may hold anything.
struct PagedCache {
  at::Tensor keys;    // [kv_heads, blocks, head_dim / w, kBlockTokens, w], after the rotation
  at::Tensor values;  // [kv_heads, blocks, kBlockTokens / w, head_dim, w]

  [[nodiscard]] std::int64_t kv_heads() const { return keys.size(0); }

  [[nodiscard]] std::int64_t num_blocks() const { return keys.size(1); }

  [[nodiscard]] std::int64_t head_dim() const { return values.size(3); }
};

/// `make` makes so many numbers, of one dtype; head_dim is even.
PagedCache make_paged_cache(std::int64_t blocks, std::int64_t kv_heads, std::int64_t head_dim,
                            const std::function<at::Tensor(std::int64_t)>& make);

/// The rows of each text and the tokens of the text that each row sees, made once for all layers of
/// a step.
struct PagedPlan {
  std::vector<PagedText> texts;  // their rows in order, without gaps
  std::int64_t num_rows = 0;
  std::vector<KeyInterval> seen;  // [rows]: tokens of its text that a row sees
  // For the plain path, on the cache's device; int64.
  at::Tensor block_of_row;  // [rows]
  at::Tensor slot_of_row;   // [rows]
  at::Tensor tables;        // [texts of one row, most blocks], 0 behind the end
  at::Tensor single_rows;   // [texts of one row]: which row
  at::Tensor single_seen;   // [texts of one row, 2]: `seen` of that row
};

/// `window`: a row sees as many tokens at most, its own the last (AttentionSetup); 0: all up to itself.
/// Throws Error(internal) for rows with gaps, or a text with too few blocks.
PagedPlan plan_paged(std::vector<PagedText> texts, at::Device device, std::int64_t window = 0);

/// Writes keys and values [1, kv_heads, rows, head_dim] (any strides) of all rows to the cache.
void paged_store(const at::Tensor& k, const at::Tensor& v, const PagedPlan& plan,
                 const PagedCache& cache, Path path = Path::fast);

/// q [1, heads, rows, head_dim] -> [rows, heads * head_dim]: each row reads the tokens that it sees from
/// the cache; query head h reads key head h / (heads / kv_heads). By the kernels a row is formed by the
/// same operations whatever other rows there are.
at::Tensor paged_attention(const at::Tensor& q, const PagedPlan& plan, const PagedCache& cache,
                           double scale, Path path = Path::fast);

}  // namespace trireme::ops
