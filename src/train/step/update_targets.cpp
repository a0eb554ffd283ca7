#include "train/step/update_targets.hpp"

#include "core/error.hpp"

namespace trireme::train {

UpdateTargets::UpdateTargets(data::DataLoader& loader, comm::Communicator& world,
                             const parallel::Mesh& mesh)
    : loader_(loader),
      world_(world),
      counts_(mesh.rank(parallel::Axis::tp) == 0 && mesh.rank(parallel::Axis::cp) == 0 &&
              mesh.rank(parallel::Axis::pp) == 0) {}

void UpdateTargets::begin_next() {
  TRIREME_ASSERT(!pending_);
  share_ = loader_.next_num_targets();
  counted_ = counts_ ? share_ : 0;
  pending_ = world_.all_reduce({.input = &counted_,
                                .output = &total_,
                                .count = 1,
                                .dtype = DType::i64,
                                .op = comm::ReduceOp::sum,
                                .tag = "targets"});
}

std::int64_t UpdateTargets::of(std::vector<data::Batch>& batches) {
  if (!pending_) begin_next();
  pending_->wait();
  pending_.reset();
  std::int64_t held = 0;
  for (data::Batch& batch : batches) {
    held += batch.num_targets;
    batch.update_targets = total_;
  }
  if (held != share_) {
    fail(
        ErrorKind::data,
        "the tables of the data set count {} targets in samples from {} on, but these samples hold {}: pack the data set again (`trireme-data verify` looks for damage)",
        share_, batches.front().sample_indices.empty() ? 0 : batches.front().sample_indices.front(),
        held);
  }
  return total_;
}

}  // namespace trireme::train
