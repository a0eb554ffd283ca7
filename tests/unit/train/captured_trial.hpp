#pragma once
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

}  // namespace trireme::train
