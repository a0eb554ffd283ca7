#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "device/captured_work.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "parallel/mesh.hpp"
#include "train/step/graph_key.hpp"

namespace trireme::train {

/// The use of CUDA graphs for micro-batches.
struct GraphUse {
  std::string mode = "false";  // train.cuda_graph: auto, true or false
  bool on_cpu = false;         // for tests without a GPU: on a CPU, a launch calls the passes again
};

/// Forward and backward of one micro-batch.
struct MicroBatchPasses {
  const parallel::Microbatch& batch;
  double grad_scale;
  at::Tensor& loss_sum;                 // scalar fp64: receives the loss
  bool starts_grads;                    // the first micro-batch of the update: gradients are 0
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
/// two, because their number differs between micro-batches, and the length of the longest one is
/// rounded up. Micro-batches without a graph are padded in the same way, so that all of them have
/// the same kernels on the same shapes: the results do not depend on which micro-batches are
/// launched.
///
///   first kUsesBeforeGraph uses of a key   run without a graph, which loads all kernels. The inputs
///                                          of the last one are stored
///   next micro-batch                       runs without a graph; then the passes are captured with
///                                          the stored inputs and checked (see check())
///   later micro-batches                    are launched
///
/// All graphs share the memory of one pool. There are at most kMostGraphs graphs: a new one replaces
/// the one that was least recently used. A run makes at most kMostCaptures graphs. So a key that is
/// used rarely does not replace the graphs of other keys again and again.
///
/// If the results differ, if the capture fails, or if the graph takes too much memory, the gradients
/// are restored and all later micro-batches run without graphs. The log says why. A micro-batch also
/// runs without a graph if
///   - it completes gradients that several data ranks sum, because the sums start during backward;
///   - weights are still gathered (ZeRO-1), because the gathers end during forward;
///   - a profile or an operation record observes the passes.
class CapturedPasses {
 public:
  static constexpr std::size_t kMostGraphs = 16;
  static constexpr int kUsesBeforeGraph = 3;
  static constexpr int kMostCaptures = 32;
  static constexpr int kMostInconclusive = 8;  // checks of a key that have no result

  /// All references must outlive this object. The gradients and the weights of the model must keep
  /// their addresses.
  CapturedPasses(model::Transformer& model, objective::Objective& objective,
                 const parallel::Mesh& mesh, GraphUse use);
  ~CapturedPasses();
  CapturedPasses(const CapturedPasses&) = delete;
  CapturedPasses& operator=(const CapturedPasses&) = delete;

  /// Must be called before the micro-batches of an update. If none of them can be launched, the
  /// micro-batches of this update are not padded. This depends on the update only, so that a resumed
  /// run computes the same results.
  void begin_update(std::int64_t num_micro_batches);

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

  /// Counts of a key.
  struct KeyUse {
    int uses = 0;          // micro-batches without a record, since the last record was replaced
    int inconclusive = 0;  // checks that had no result
  };

  [[nodiscard]] bool may_launch(const MicroBatchPasses& passes) const;
  /// Returns the record of a key, and makes it the most recently used one; null if there is none.
  Captured* find(const PassesKey& key);
  /// Counts a use of a key that has no record. Returns true if the key gets a record.
  bool is_due(const PassesKey& key);
  /// Makes a record with the inputs of a micro-batch. Replaces the least recently used one.
  void add(const PassesKey& key, const MicroBatchPasses& passes);
  /// Runs the passes with the inputs of the record. Gradients are added, but not counted.
  void compute(Captured& captured);
  /// Captures the passes. The gradients change. `held_bytes`: memory that the check holds.
  void capture(Captured& captured, double held_bytes);
  /// Runs the passes of a micro-batch without a graph. Then captures the graph if necessary,
  /// launches it with the inputs of this micro-batch and half of the gradient scale, and compares
  /// the loss and the gradients with the expected ones. So a graph that reads an old input or an old
  /// scale is found. Gradients are expected to be
  ///   - those of the run without a graph, in the first micro-batch of an update;
  ///   - those of compute(), if the first micro-batch of an update cannot be launched (ZeRO-1).
  ///     Only the loss is compared with the run without a graph.
  /// The check allocates memory only after the run without a graph, when its activations are free.
  void check(Captured& captured, const MicroBatchPasses& passes);
  /// Returns the difference of a launch from the expected results as text; "" if there is none.
  /// Returns nullopt if the micro-batch has no finite gradients, or only zeros. The gradients change.
  std::optional<std::string> difference(Captured& captured, const MicroBatchPasses& passes,
                                        const at::Tensor& grads_without_graph,
                                        const at::Tensor& loss_without_graph);
  void launch(Captured& captured, const MicroBatchPasses& passes);
  void run_without_graph(const MicroBatchPasses& passes) const;
  /// Runs an action that needs memory. If it throws, sets failure_ and is_choice_.
  void attempt(const std::function<void()>& action);
  /// Frees the graphs and logs failure_.
  void turn_off();
  void log_on_first_rank(bool is_warning, const std::string& text) const;

  model::Transformer& model_;
  objective::Objective& objective_;
  GraphUse use_;
  bool is_first_rank_;       // rank 0 of the world
  bool sums_over_ranks_;     // several data ranks sum their gradients
  bool gathers_weights_;     // the first micro-batch of an update does it (ZeRO-1)
  bool is_possible_ = true;  // this update can have launches
  bool said_impossible_ = false;
  std::shared_ptr<device::CapturePool> pool_;
  double pool_bytes_ = 0;
  std::map<PassesKey, KeyUse> uses_;
  std::list<std::unique_ptr<Captured>> captured_;
  int num_captures_ = 0;  // records so far
  std::string failure_;
  bool is_choice_ = false;  // failure_ is a reason of memory in mode auto
  std::int64_t num_launches_ = 0;
};

/// Returns the graphs of a training; null if use.mode is false or if they are not possible. With
/// mode true, a warning states the reason.
std::unique_ptr<CapturedPasses> make_captured_passes(const GraphUse& use, model::Transformer& model,
                                                     objective::Objective& objective,
                                                     const parallel::Mesh& mesh);

}  // namespace trireme::train
