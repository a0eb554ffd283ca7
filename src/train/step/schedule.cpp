#include "train/step/schedule.hpp"

namespace trireme {

std::vector<Operation> single_stage_schedule(int num_micro_batches) {
  std::vector<Operation> operations;
  for (int i = 0; i < num_micro_batches; ++i) {
    operations.push_back({Operation::Kind::forward, i});
    operations.push_back({Operation::Kind::backward, i});
  }
  return operations;
}

}  // namespace trireme
