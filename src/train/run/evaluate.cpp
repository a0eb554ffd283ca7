#include "train/run/evaluate.hpp"

#include <algorithm>
#include <vector>

#include "core/process/failpoints.hpp"
#include "parallel/collectives.hpp"
#include "parallel/context/deal_tokens.hpp"
#include "train/step/microbatches.hpp"

namespace trireme {

std::optional<Validation> evaluate(
    Transformer& model, const Objective& objective, std::span<const SampleSet> sets,
    const Mesh& mesh, std::int64_t micro_batch,
    const std::function<bool(std::int64_t, std::int64_t)>& stop_before) {
  const std::int64_t stride = micro_batch * mesh.size(Axis::dp);
  const at::Device device = model.registry().device();
  const auto num_sums = static_cast<std::int64_t>(1 + objective.evaluated().size());
  at::Tensor sums =  // of the loss and what is evaluated beside it; terms
      at::zeros({num_sums + 1}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const SampleSet& samples : sets) {
    const SampleOrder in_file_order(samples.size(), 0, /*shuffle=*/false);
    const auto total = static_cast<std::int64_t>(samples.size());
    const std::int64_t rounds = (total + stride - 1) / stride;
    for (std::int64_t round = 0; round < rounds; ++round) {
      failpoint("train.validate");
      if (stop_before(round, rounds)) return std::nullopt;
      const std::int64_t first = round * stride + micro_batch * mesh.rank(Axis::dp);
      std::vector<std::int64_t> indices;
      for (std::int64_t i = first; i < std::min(first + micro_batch, total); ++i)
        indices.push_back(i);
      if (indices.empty()) indices.push_back(kNoSample);  // all ranks gather weights alike
      const Batch batch = samples.make_batch(indices, in_file_order);
      const Microbatch one = deal_tokens(to_microbatch(batch, device, 0, /*training=*/false), mesh);
      sums.narrow(0, 0, num_sums).add_(objective.evaluate(one, model.hidden(one)));
      if (mesh.rank(Axis::cp) == 0)
        sums[num_sums].add_(static_cast<double>(num_terms(batch, objective.term())));
    }
  }
  all_reduce(mesh.group(Axis::data), sums, ReduceOp::sum, "validation")->wait();
  const at::Tensor all = sums.to(at::kCPU);
  const double* values = all.const_data_ptr<double>();
  Validation result{values[0] / values[num_sums], values[num_sums], {}};
  for (std::int64_t i = 1; i < num_sums; ++i) result.means.push_back(values[i] / values[num_sums]);
  return result;
}

}  // namespace trireme
