#include "ops/cuda/embedding.hpp"

#include <ATen/ATen.h>

namespace trireme::ops::cuda {

bool accepts_embedding(const at::Tensor& table, const at::Tensor& grads) {
  return table.scalar_type() == at::kFloat && table.is_contiguous() &&
         accepts(grads, {&kEmbeddingSegments, &kEmbeddingRuns});
}

void add_embedding_gradient(const at::Tensor& table, const at::Tensor& index_in,
                            const at::Tensor& grads_in) {
  const std::int64_t width = table.size(1);
  const std::int64_t count = width == 0 ? 0 : index_in.numel();
  const at::Tensor grads = grads_in.contiguous();
  const auto [index, order] = at::sort(index_in, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const std::int64_t segments = (count + kSegment - 1) / kSegment;
  const at::Tensor partials = at::empty({segments, 2, width}, table.options());
  const EmbeddingGradient arguments{.index = data_of<std::int64_t>(index),
                                    .order = data_of<std::int64_t>(order),
                                    .grads = data_or_null(grads),
                                    .table = data_of<float>(table),
                                    .partials = data_of<float>(partials),
                                    .count = count,
                                    .width = width};
  launch(kEmbeddingSegments, grads, {segments, threads_for_row(width, grads)}, arguments);
  launch(kEmbeddingRuns, table, {segments, threads_for_row(width, table)}, arguments);
}

}  // namespace trireme::ops::cuda
