#include "train/evaluate.hpp"

#include <array>
#include <vector>

#include "train/microbatches.hpp"

namespace trireme {

Validation evaluate(Transformer& model, const SampleSet& samples, Communicator& data_group, std::int64_t micro_batch) {
  const SampleOrder in_file_order(samples.size(), 0, /*shuffle=*/false);
  const auto total = static_cast<std::int64_t>(samples.size());
  const std::int64_t stride = micro_batch * data_group.size();
  std::array<double, 2> sums{};  // loss, targets
  for (std::int64_t first = micro_batch * data_group.rank(); first < total; first += stride) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + micro_batch, total); ++i) indices.push_back(i);
    const Batch batch = samples.make_batch(indices, in_file_order);
    sums[0] += model.evaluate(to_microbatch(batch, model.registry().device(), 0, /*training=*/false)).item<double>();
    sums[1] += static_cast<double>(batch.num_targets);
  }
  data_group.all_reduce(sums.data(), sums.data(), sums.size(), DType::f64, ReduceOp::sum, {}, "validation")->wait();
  return {sums[0] / sums[1], sums[1]};
}

}  // namespace trireme
