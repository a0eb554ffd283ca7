#include "ops/paged_attention.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/upload.hpp"

namespace trireme::ops {
namespace {

using kernels::kBlockTokens;

/// Approximate number of query heads per kernel call, to reuse a block while it is in cache.
constexpr std::int64_t kQueriesPerCall = 24;

std::int64_t blocks_for(std::int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

/// `rows` are queries or keys [1, heads, rows, head_dim].
bool cpu_accepts_cache(const at::Tensor& rows, const PagedCache& cache) {
  return cpu_accepts(cache.keys) && cache.head_dim() % kBlockTokens == 0 &&
         cache.head_dim() <= kernels::kMaxHeadWidth &&
         rows.size(1) / cache.kv_heads() <= kernels::kMaxPagedQueries;
}

struct PagedTask {
  std::size_t text;
  std::int64_t kv_head;
  std::int64_t first_row;
  std::int64_t last_row;
};

std::vector<PagedTask> paged_tasks(const PagedPlan& plan, std::int64_t kv_heads,
                                   std::int64_t group) {
  const std::int64_t rows_per_call = std::max<std::int64_t>(kQueriesPerCall / group, 1);
  std::vector<PagedTask> tasks;
  for (std::int64_t head = 0; head < kv_heads; ++head) {
    for (std::size_t text = 0; text < plan.texts.size(); ++text) {
      const std::int64_t rows = plan.texts[text].num_rows;
      for (std::int64_t row = 0; row < rows; row += rows_per_call)
        tasks.push_back({text, head, row, std::min(rows, row + rows_per_call)});
    }
  }
  return tasks;
}

at::Tensor cpu_attention(const at::Tensor& q_in, const PagedPlan& plan, const PagedCache& cache,
                         double scale, double /*softcap*/) {
  const kernels::Table& table = kernels::table();
  const at::Tensor q = last_dim_contiguous(q_in);
  const std::int64_t width = q.size(3);
  const std::int64_t heads = q.size(1);
  const std::int64_t kv_heads = cache.kv_heads();
  const std::int64_t group = heads / kv_heads;
  const at::Tensor out = at::empty({plan.num_rows, heads * width}, q.options());
  const std::vector<PagedTask> tasks = paged_tasks(plan, kv_heads, group);
  const auto run = [&](std::int64_t first, std::int64_t last) {
    std::vector<float> scratch(
        static_cast<std::size_t>(kernels::kMaxPagedQueries * (2 * width + kBlockTokens)));
    for (std::int64_t i = first; i < last; ++i) {
      const PagedTask& task = tasks[static_cast<std::size_t>(i)];
      const PagedSequence& text = plan.texts[task.text];
      table.paged_attention({.element = element_of(cache.keys),
                             .q = element_at(q, text.first_row * q.stride(2)),
                             .q_row_stride = q.stride(2),
                             .q_head_stride = q.stride(1),
                             .keys = cache.keys.const_data_ptr(),
                             .values = cache.values.const_data_ptr(),
                             .out = element_at(out, text.first_row * heads * width),
                             .out_row_stride = heads * width,
                             .blocks = text.blocks.data(),
                             .scratch = scratch.data(),
                             .seen = plan.seen.data() + text.first_row,
                             .first_row = task.first_row,
                             .last_row = task.last_row,
                             .num_blocks = cache.num_blocks(),
                             .kv_head = task.kv_head,
                             .group = group,
                             .width = width,
                             .scale = static_cast<float>(scale)});
    }
  };
  for_dynamic_chunks(static_cast<std::int64_t>(tasks.size()), run);
  return out;
}

void cpu_store(const at::Tensor& k_in, const at::Tensor& v_in, const PagedPlan& plan,
               const PagedCache& cache) {
  const at::Tensor k = last_dim_contiguous(k_in);
  const at::Tensor v = last_dim_contiguous(v_in);
  for (const PagedSequence& text : plan.texts) {
    const kernels::PagedStore all{.element = element_of(cache.keys),
                                  .k = element_at(k, text.first_row * k.stride(2)),
                                  .k_row_stride = k.stride(2),
                                  .k_head_stride = k.stride(1),
                                  .v = element_at(v, text.first_row * v.stride(2)),
                                  .v_row_stride = v.stride(2),
                                  .v_head_stride = v.stride(1),
                                  .keys = cache.keys.data_ptr(),
                                  .values = cache.values.data_ptr(),
                                  .blocks = text.blocks.data(),
                                  .before = text.before,
                                  .first_row = 0,
                                  .last_row = text.num_rows,
                                  .kv_heads = cache.kv_heads(),
                                  .num_blocks = cache.num_blocks(),
                                  .width = cache.head_dim()};
    for_rows(text.num_rows, [&](std::int64_t first, std::int64_t last) {
      kernels::PagedStore part = all;
      part.first_row = first;
      part.last_row = last;
      kernels::table().paged_store(part);
    });
  }
}

/// Attention of q [T, heads, n, D] over keys [T, kv_heads, D, L] and values [T, kv_heads, L, D],
/// with seen [T, 1, n, L]. Returns [T, n, heads * D].
at::Tensor attend_to(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                     const at::Tensor& seen, double scale, double softcap) {
  const at::ScalarType wide = accumulate_type(q);
  const std::int64_t texts = q.size(0);
  const std::int64_t heads = q.size(1);
  const std::int64_t rows = q.size(2);
  const std::int64_t width = q.size(3);
  const std::int64_t kv_heads = keys.size(1);
  const std::int64_t group = heads / kv_heads;
  const at::Tensor grouped = q.reshape({texts, kv_heads, group * rows, width}).to(wide);
  at::Tensor scores =
      grouped.matmul(keys.to(wide)).mul(scale).view({texts, heads, rows, keys.size(3)});
  if (softcap > 0) scores = scores.div_(softcap).tanh_().mul_(softcap);
  scores = scores.masked_fill(seen.logical_not(), -INFINITY);
  return scores.softmax(-1)
      .view({texts, kv_heads, group * rows, keys.size(3)})
      .matmul(values.to(wide))
      .to(q.scalar_type())
      .view({texts, heads, rows, width})
      .transpose(1, 2)
      .reshape({texts, rows, heads * width});
}

struct Gathered {
  at::Tensor keys;    // [T, kv_heads, D, L]
  at::Tensor values;  // [T, kv_heads, L, D]
};

/// Gathers the blocks in tables [T, n] as whole sequences of L = 16 n tokens. Unseen values are 0.
Gathered gather_texts(const PagedCache& cache, const at::Tensor& tables, const at::Tensor& seen) {
  const std::int64_t texts = tables.size(0);
  const std::int64_t length = tables.size(1) * kBlockTokens;
  const std::int64_t kv_heads = cache.kv_heads();
  const std::int64_t width = cache.head_dim();
  const std::int64_t word = cache.keys.size(4);
  const at::Tensor flat = tables.flatten();
  const at::Tensor keys =
      cache.keys.index_select(1, flat)
          .view({kv_heads, texts, tables.size(1), width / word, kBlockTokens, word})
          .permute({1, 0, 3, 5, 2, 4})
          .reshape({texts, kv_heads, width, length});
  const at::Tensor values = cache.values.index_select(1, flat)
                                .view({kv_heads, texts, length / word, width, word})
                                .permute({1, 0, 2, 4, 3})
                                .reshape({texts, kv_heads, length, width});
  // A weight of 0 times a NaN in an unused slot would be NaN.
  return {keys, values.masked_fill(seen.logical_not().view({texts, 1, length, 1}), 0)};
}

/// Returns [rows, length] bool: true inside the intervals [rows, 2].
at::Tensor seen_tokens(const at::Tensor& intervals, std::int64_t length) {
  const at::Tensor token = at::arange(length, intervals.options());
  return token.ge(intervals.narrow(1, 0, 1)).logical_and_(token.lt(intervals.narrow(1, 1, 1)));
}

at::Tensor plain_attention(const at::Tensor& q, const PagedPlan& plan, const PagedCache& cache,
                           double scale, double softcap) {
  const std::int64_t width = q.size(3);
  const at::Tensor out = at::empty({plan.num_rows, q.size(1) * width}, q.options());
  if (plan.single_rows.defined()) {  // [T, 1, 1, L]
    const at::Tensor seen = seen_tokens(plan.single_seen, plan.tables.size(1) * kBlockTokens);
    const Gathered texts = gather_texts(cache, plan.tables, seen);
    const at::Tensor queries =  // [T, heads, 1, D]
        q.select(0, 0).index_select(1, plan.single_rows).transpose(0, 1).unsqueeze(2);
    out.index_copy_(0, plan.single_rows,
                    attend_to(queries, texts.keys, texts.values,
                              seen.view({queries.size(0), 1, 1, -1}), scale, softcap)
                        .select(1, 0));
  }
  for (const PagedPrompt& prompt : plan.prompts) {
    const PagedSequence& text = plan.texts[prompt.text];
    const std::int64_t end = text.before + text.num_rows;
    const at::Tensor position =
        at::arange(prompt.blocks.size(1) * kBlockTokens, prompt.blocks.options());
    const Gathered whole = gather_texts(cache, prompt.blocks, position.lt(end).unsqueeze(0));
    const at::Tensor seen = seen_tokens(prompt.seen, position.size(0));  // [rows, L]
    out.narrow(0, text.first_row, text.num_rows)
        .copy_(attend_to(q.narrow(2, text.first_row, text.num_rows), whole.keys, whole.values,
                         seen.unsqueeze(0).unsqueeze(0), scale, softcap)
                   .select(0, 0));
  }
  return out;
}

void plain_store(const at::Tensor& k, const at::Tensor& v, const PagedPlan& plan,
                 const PagedCache& cache) {
  const std::int64_t word = cache.keys.size(4);
  const at::Tensor heads = at::arange(cache.kv_heads(), plan.block_of_row.options()).unsqueeze(0);
  const at::Tensor blocks = plan.block_of_row.unsqueeze(1);
  const at::Tensor slots = plan.slot_of_row.unsqueeze(1);
  const at::Tensor key_rows = k.select(0, 0).transpose(0, 1);  // [rows, kv_heads, head_dim]
  cache.keys.transpose(2, 3).index_put_(
      {heads, blocks, slots}, key_rows.reshape({key_rows.size(0), key_rows.size(1), -1, word}));
  cache.values.transpose(3, 4).index_put_(
      {heads, blocks, slots.div(word, "floor"), slots.remainder(word)},
      v.select(0, 0).transpose(0, 1));
}

struct PagedRow {
  bool (*accepts)(const at::Tensor& rows, const PagedCache& cache);
  decltype(&plain_store) store;
  decltype(&plain_attention) attend;
};

constexpr std::array kPaged{
    PagedRow{cpu_accepts_cache, cpu_store, cpu_attention},
    PagedRow{nullptr, plain_store, plain_attention},
};

}  // namespace

PagedCache make_paged_cache(std::int64_t blocks, std::int64_t kv_heads, std::int64_t head_dim,
                            const std::function<at::Tensor(std::int64_t)>& make) {
  const std::int64_t count = blocks * kv_heads * head_dim * kBlockTokens;
  const at::Tensor keys = make(count);
  const std::int64_t word = kernels::in_block_word(keys.element_size());
  return {keys.view({kv_heads, blocks, head_dim / word, kBlockTokens, word}),
          make(count).view({kv_heads, blocks, kBlockTokens / word, head_dim, word})};
}

PagedPlan plan_paged(std::vector<PagedSequence> texts, at::Device device,
                     const AttentionMask& mask) {
  PagedPlan plan;
  plan.mask = mask;
  std::vector<std::int64_t> block_of_row;
  std::vector<std::int64_t> slot_of_row;
  std::vector<std::int64_t> single_rows;
  std::vector<std::int64_t> single_seen;
  std::int64_t most_blocks = 0;
  for (const PagedSequence& text : texts) {
    const std::int64_t end = text.before + text.num_rows;
    TRIREME_ASSERT(text.first_row == plan.num_rows && text.num_rows > 0 && text.before >= 0);
    TRIREME_ASSERT(static_cast<std::int64_t>(text.blocks.size()) >= blocks_for(end));
    plan.num_rows += text.num_rows;
    for (std::int64_t position = text.before; position < end; ++position) {
      block_of_row.push_back(text.blocks[static_cast<std::size_t>(position / kBlockTokens)]);
      slot_of_row.push_back(position % kBlockTokens);
      KeyInterval seen = mask.positions_seen(position);
      seen.begin = std::max<std::int64_t>(seen.begin, 0);
      plan.seen.push_back(seen);
    }
    if (text.num_rows > 1) continue;
    single_rows.push_back(text.first_row);
    single_seen.insert(single_seen.end(), {plan.seen.back().begin, plan.seen.back().end});
    most_blocks = std::max(most_blocks, blocks_for(end));
  }
  const auto on_device = [&](const std::vector<std::int64_t>& numbers) {
    return upload(at::tensor(numbers, at::kLong), device);
  };
  plan.block_of_row = on_device(block_of_row);
  plan.slot_of_row = on_device(slot_of_row);
  if (!single_rows.empty()) {
    std::vector<std::int64_t> tables;
    for (const PagedSequence& text : texts) {
      if (text.num_rows > 1) continue;
      const auto used = static_cast<std::size_t>(blocks_for(text.before + 1));
      for (std::size_t i = 0; i < static_cast<std::size_t>(most_blocks); ++i)
        tables.push_back(i < used ? text.blocks[i] : 0);
    }
    plan.single_rows = on_device(single_rows);
    plan.single_seen = on_device(single_seen).view({-1, 2});
    plan.tables = on_device(tables).view({-1, most_blocks});
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const PagedSequence& text = texts[i];
    if (text.num_rows == 1) continue;
    const auto used = static_cast<std::size_t>(blocks_for(text.before + text.num_rows));
    std::vector<std::int64_t> intervals;
    for (std::int64_t row = text.first_row; row < text.first_row + text.num_rows; ++row) {
      const KeyInterval& seen = plan.seen[static_cast<std::size_t>(row)];
      intervals.insert(intervals.end(), {seen.begin, seen.end});
    }
    plan.prompts.push_back(
        {i,
         on_device({text.blocks.begin(), text.blocks.begin() + std::ptrdiff_t(used)}).unsqueeze(0),
         on_device(intervals).view({-1, 2})});
  }
  plan.texts = std::move(texts);
  return plan;
}

void paged_store(const at::Tensor& k, const at::Tensor& v, const PagedPlan& plan,
                 const PagedCache& cache, Path path) {
  const at::NoGradGuard no_grad;
  choose(path, kPaged, k, cache).store(k, v, plan, cache);
}

at::Tensor paged_attention(const at::Tensor& q, const PagedPlan& plan, const PagedCache& cache,
                           double scale, Path path, double softcap) {
  const at::NoGradGuard no_grad;
  if (softcap > 0) path = Path::plain;
  return choose(path, kPaged, q, cache).attend(q, plan, cache, scale, softcap);
}

}  // namespace trireme::ops
