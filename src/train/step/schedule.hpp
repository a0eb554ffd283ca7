#pragma once
#include <vector>

namespace trireme {

/// One operation of a step on one rank. A schedule is a list of these:
/// changing it replaces data, not code.
struct StepOperation {
  enum class Kind { forward, backward } kind;
  int micro_batch = 0;
};

/// The list for one pipeline stage: each micro-batch forward, then backward, so
/// that one set of activations lives.
std::vector<StepOperation> single_stage_schedule(int num_micro_batches);

}  // namespace trireme
