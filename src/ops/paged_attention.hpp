#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/attention/mask.hpp"
#include "ops/path.hpp"

/// Attention of growing sequences over keys and values in blocks of kBlockTokens tokens, which
/// sequences may share. Source: Kwon et al., "PagedAttention", SOSP 2023.
namespace trireme::ops {

/// Rows [first_row, first_row + num_rows) of a step: tokens before, before + 1, ... of a sequence.
struct PagedSequence {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::int64_t before = 0;           // number of tokens already in the cache
  std::vector<std::int32_t> blocks;  // blocks of all tokens in order, including these rows
};

/// The blocks of one layer. Blocks of one head are adjacent, so a sequence with consecutive blocks
/// is read as one stream. w is kernels::in_block_word. Unused slots may hold garbage.
struct PagedCache {
  at::Tensor keys;    // [kv_heads, blocks, head_dim / w, kBlockTokens, w], after the rotation
  at::Tensor values;  // [kv_heads, blocks, kBlockTokens / w, head_dim, w]

  [[nodiscard]] std::int64_t kv_heads() const { return keys.size(0); }

  [[nodiscard]] std::int64_t num_blocks() const { return keys.size(1); }

  [[nodiscard]] std::int64_t head_dim() const { return values.size(3); }
};

/// Allocates a cache. `make` allocates a number of elements of one dtype; head_dim must be even.
PagedCache make_paged_cache(std::int64_t blocks, std::int64_t kv_heads, std::int64_t head_dim,
                            const std::function<at::Tensor(std::int64_t)>& make);

/// A sequence with several rows (a prompt) on the cache's device.
struct PagedPrompt {
  std::size_t text;   // index into PagedPlan::texts
  at::Tensor blocks;  // [1, blocks] int64
  at::Tensor seen;    // [rows, 2] int64: `seen` of its rows
};

/// The rows of each sequence and the tokens that each row sees, computed once per step.
struct PagedPlan {
  AttentionMask mask;
  std::vector<PagedSequence> texts;  // rows in order, without gaps
  std::int64_t num_rows = 0;
  std::vector<KeyInterval> seen;  // [rows]: tokens of its sequence that a row sees
  // Only for the plain path, int64 on the cache's device:
  at::Tensor block_of_row;  // [rows]
  at::Tensor slot_of_row;   // [rows]
  at::Tensor tables;        // [single-row sequences, most blocks], padded with 0
  at::Tensor single_rows;   // [single-row sequences]: row index
  at::Tensor single_seen;   // [single-row sequences, 2]: `seen` of that row
  std::vector<PagedPrompt> prompts;
};

/// Plans a step of layers with this mask, which must be causal. Throws Error(internal) for gaps in
/// rows and missing blocks.
PagedPlan plan_paged(std::vector<PagedSequence> texts, at::Device device,
                     const AttentionMask& mask = {});

/// Stores keys and values [1, kv_heads, rows, head_dim] (any strides) of all rows in the cache.
void paged_store(const at::Tensor& k, const at::Tensor& v, const PagedPlan& plan,
                 const PagedCache& cache, Path path = Path::fast);

/// Computes [rows, heads * head_dim] from q [1, heads, rows, head_dim] and the cached tokens that
/// each row sees. Query head h reads key head h / (heads / kv_heads). The CPU kernels compute a row
/// by the same operations whatever other rows there are. `softcap` is that of AttentionSetup.
at::Tensor paged_attention(const at::Tensor& q, const PagedPlan& plan, const PagedCache& cache,
                           double scale, Path path = Path::fast, double softcap = 0);

}  // namespace trireme::ops
