#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "parallel/mesh.hpp"

namespace trireme::train {

/// The properties of a micro-batch that a graph depends on.
struct PassesKey {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::int64_t documents = 0;  // a power of two; 0: every row is one document
  std::int64_t window = 0;     // largest window in training (train.window_schedule)
  bool has_weights = false;    // targets have weights

  bool operator==(const PassesKey&) const = default;
};

/// Forward and backward of one micro-batch.
struct MicroBatchPasses {
  const parallel::Microbatch& batch;
  double grad_scale;
  at::Tensor& loss_sum;                 // scalar fp64: receives the loss
  bool completes_grads;                 // the last micro-batch of the update
  std::function<void()> run;            // runs both passes without a graph
  std::function<void()> before_launch;  // runs before a graph is launched
};

/// Returns why the passes of a micro-batch cannot be captured; "" if they can be. `objective` and
/// `model` belong to the mesh.
std::string reason_against_captured_passes(const model::Transformer& model,
                                           const objective::Objective& objective,
                                           const parallel::Mesh& mesh);

/// Forward, loss and backward of one micro-batch as a CUDA graph, one graph for each key. All inputs
/// are copied to tensors with fixed addresses. Documents are padded with empty ones to a power of
/// two, because their number differs between micro-batches. Micro-batches without a graph are padded
/// in the same way, so that all of them have the same kernels on the same shapes: the results do not
/// depend on which micro-batches are launched.
///
///   first micro-batch of a key   runs without a graph, which loads all kernels
///   second micro-batch           runs without a graph; then the passes are captured with the inputs
///                                of the first micro-batch, and launched with those of the second
///                                and half of the gradient scale. The loss and the gradients must
///                                be those of the run without a graph. A graph that reads an old
///                                input or an old scale is found in this way
///   later micro-batches          are launched
///
/// If the results differ, if the capture fails, or if the graph leaves too little memory for
/// passes without a graph, a warning says so, and all later micro-batches run without graphs. A
/// micro-batch also runs without a graph if
///   - it completes gradients that several data ranks sum, because the sums start during backward;
///   - weights are still gathered (ZeRO-1), because the gathers end during forward;
///   - a profile or an operation record observes the passes.
class CapturedPasses {
 public:
  /// All arguments must outlive this object. The gradients and the weights of the model must keep
  /// their addresses.
  CapturedPasses(model::Transformer& model, objective::Objective& objective,
                 const parallel::Mesh& mesh);
  ~CapturedPasses();
  CapturedPasses(const CapturedPasses&) = delete;
  CapturedPasses& operator=(const CapturedPasses&) = delete;

  /// Pads the documents of a micro-batch. Call it before passes that run() does not run.
  void pad(const parallel::Microbatch& batch) const;

  /// Runs the passes of a micro-batch in one of the two ways: adds its loss to loss_sum, adds its
  /// gradients to the registry, and counts one backward pass of the registry.
  void run(const MicroBatchPasses& passes);

  /// Returns the number of micro-batches that were launched as a graph, without checks.
  [[nodiscard]] std::int64_t num_launches() const { return num_launches_; }

  [[nodiscard]] std::size_t num_graphs() const { return captured_.size(); }

  /// Returns why graphs were turned off; "" if they are on.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct Captured;

  [[nodiscard]] PassesKey key_of(const parallel::Microbatch& batch) const;
  [[nodiscard]] bool may_launch(const MicroBatchPasses& passes) const;
  /// Returns the record of a key, the most recently used first; null on its first use.
  Captured* find(const PassesKey& key);
  /// Runs the passes with the inputs of the record. Gradients are added, but not counted.
  void compute(Captured& captured);
  /// Captures the passes. The gradients change.
  void capture(Captured& captured);
  /// Runs the passes of a micro-batch without a graph, then captures and checks the graph.
  void check(Captured& captured, const MicroBatchPasses& passes);
  void launch(Captured& captured, const MicroBatchPasses& passes);
  void run_without_graph(const MicroBatchPasses& passes) const;
  void turn_off(const std::string& why);

  model::Transformer& model_;
  objective::Objective& objective_;
  bool sums_over_ranks_;  // several data ranks sum their gradients
  std::int64_t pool_;
  double pool_bytes_ = 0;
  std::list<std::unique_ptr<Captured>> captured_;
  std::string failure_;
  std::int64_t num_launches_ = 0;
};

/// The use of CUDA graphs for micro-batches.
struct GraphUse {
  std::string mode = "false";  // train.cuda_graph: auto, true or false
  bool on_cpu = false;         // for tests without a GPU: on a CPU, a launch calls the passes again
};

/// Returns the graphs of a training; null if use.mode is false or if they are not possible. With
/// mode true, a warning states the reason.
std::unique_ptr<CapturedPasses> make_captured_passes(const GraphUse& use, model::Transformer& model,
                                                     objective::Objective& objective,
                                                     const parallel::Mesh& mesh);

}  // namespace trireme::train
