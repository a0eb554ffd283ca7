#pragma once
#include <ATen/Parallel.h>

#include <array>
#include <functional>
#include <utility>

#include "comm/thread/thread_world.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::train {

/// Graphs on a CPU, where a launch calls the passes again.
inline const GraphUse kGraphs{.mode = "true", .on_cpu = true};

inline TrialShape graph_trial_shape(at::ScalarType dtype) {
  TrialShape shape;
  shape.model = small_model_like(model::model_preset("tiny"), {});
  shape.dtypes = {dtype, dtype == at::kDouble ? at::kDouble : at::kFloat};
  shape.path = ops::Path::fast;
  return shape;
}

/// The micro-batches of an update. Their documents, targets and loss terms differ between updates.
struct Updates {
  int num = 4;
  int micro_batches = 4;
  bool weighted = false;
  bool packed = true;  // false: one document per row

  [[nodiscard]] data::Batch batch(int update, int i, const model::ModelConfig& model) const {
    const std::int64_t sample = 2 * (update * micro_batches + i);
    data::Batch batch =
        make_rows({sample, sample + 1}, packed ? model.max_seq_len : 4, model.vocab_size);
    if (!packed) {
      batch.segment_bounds = {0, 4, 8};
      batch.positions = {0, 1, 2, 3, 0, 1, 2, 3};
      for (std::size_t t = 0; t < 8; ++t)
        batch.targets[t] = (sample + static_cast<std::int64_t>(t)) % 11;
      batch.num_targets = 8;
    }
    if (weighted) {
      for (std::size_t t = 0; t < batch.tokens.size(); ++t)
        batch.target_weights.push_back(
            0.5F + static_cast<float>((static_cast<std::int64_t>(t) + sample) % 7));
    }
    return batch;
  }
};

/// Returns the results of `call` on two ranks.
template <class Result>
std::array<Result, 2> on_two_ranks(const std::function<Result(comm::Communicator&)>& call) {
  std::array<Result, 2> results;
  comm::run_ranks(2, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    results.at(static_cast<std::size_t>(world.rank())) = call(world);
  });
  return results;
}

}  // namespace trireme::train
