#include "train/step/schedule.hpp"

namespace trireme {

std::vector<StepOperation> single_stage_schedule(int num_micro_batches) {
  std::vector<StepOperation> operations;
  for (int i = 0; i < num_micro_batches; ++i) {
    operations.push_back({StepOperation::Kind::forward, i});
    operations.push_back({StepOperation::Kind::backward, i});
  }
  return operations;
}

}  // namespace trireme
