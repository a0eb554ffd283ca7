#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "device/captured_work.hpp"
#include "generate/model_ranks.hpp"
#include "model/kv_cache.hpp"

namespace trireme::generate {

/// The shape of a decoding step for which one graph is captured.
struct DecodeShape {
  std::int64_t rows = 0;    // sequences, a power of two
  std::int64_t blocks = 0;  // KV blocks of the longest sequence, rounded up

  bool operator==(const DecodeShape&) const = default;
};

/// Returns the shape that a step is padded to. Returns nullopt if the step is no decoding step (a
/// sequence has several rows, or a hidden state is not wanted), or if it is so large that launches
/// are a small part of its time.
std::optional<DecodeShape> decode_shape(const StepRows& rows);

/// Returns why decoding steps of this model cannot be captured; "" if they can be.
/// `num_ranks`: ranks that compute the model together.
std::string reason_against_decode_graphs(const model::Transformer& model, int num_ranks);

/// Decoding steps as CUDA graphs, one for each shape. A step is padded to its shape with copies of
/// its first row, which write the same values to the same places of the cache.
///
/// The first step of a shape runs without a graph. The second step is computed without a graph,
/// then padded but without a graph, which loads the kernels of the shape, and then as a graph. If
/// the results differ, or if the capture fails, a warning says so, and all later steps run without
/// graphs. For the thread that runs the engine.
class DecodeGraphs {
 public:
  /// Both arguments must outlive this object and keep their memory in place.
  DecodeGraphs(model::Transformer& model, const model::KvCache& cache);
  ~DecodeGraphs();
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;

  /// Returns compute_rows() of the step: the hidden states of all its rows.
  at::Tensor compute_rows(const StepRows& rows);

  /// Returns the number of steps that were launched as a graph.
  [[nodiscard]] std::int64_t num_launches() const { return num_launches_; }

 private:
  struct Captured;

  /// Returns the record of a shape, the most recently used first; null on its first use.
  Captured* find(const DecodeShape& shape);
  at::Tensor capture(Captured& captured, const StepRows& rows);

  model::Transformer& model_;
  const model::KvCache& cache_;
  std::shared_ptr<device::CapturePool> pool_;
  std::list<std::unique_ptr<Captured>> captured_;
  bool works_ = true;
  std::int64_t num_launches_ = 0;
};

/// Returns the graphs of an engine; null if `mode` (EngineConfig::cuda_graph) is false or if they
/// are not possible. Arguments: those of the constructor and of reason_against_decode_graphs().
std::unique_ptr<DecodeGraphs> make_decode_graphs(const std::string& mode, model::Transformer& model,
                                                 const model::KvCache& cache, int num_ranks);

}  // namespace trireme::generate
