#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.hpp"
#include "generate/engine_config.hpp"
#include "model/kv_cache.hpp"
#include "ops/paged_attention.hpp"

namespace trireme::model {

class Transformer;

}  // namespace trireme::model

namespace trireme::generate {

/// The rows of one step of the engine, in host memory.
struct StepRows {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> previous;   // the token before each token, -1: none
  std::vector<std::int64_t> positions;  // one for each token
  std::vector<ops::PagedSequence> texts;
  std::vector<std::int64_t> kept;  // rows to return hidden states of
};

/// Returns the hidden states of the kept rows. `pipeline`: the ranks of pp, if a model is divided
/// into stages; null: this rank has all layers. Collective over tp and `pipeline`. Only the last
/// stage and the first rank of tp in the first stage return a tensor.
at::Tensor compute_rows(model::Transformer& model, const StepRows& rows,
                        const model::KvCache& cache, comm::Communicator* pipeline);

/// Returns the logits of rows [first, first + rows) of `hidden`, the result of compute_rows(), on
/// the ranks that compute_rows() returns a tensor on. Collective like compute_rows().
at::Tensor compute_logits(model::Transformer& model, const at::Tensor& hidden, std::int64_t first,
                          std::int64_t rows, comm::Communicator* pipeline);

/// The ranks that compute one model together (tensor and pipeline parallelism), as rank 0 sees
/// them. Rank 0 has the engine: it schedules and samples. Before each computation, rank 0 sends its
/// input to the other ranks, which run follow(). All functions are collective with follow().
class ModelRanks {
 public:
  /// `world` and `pipeline` must outlive this object. `pipeline`: as in compute_rows();
  /// `stage_layers`: the largest number of layers of a stage, 0 without stages.
  explicit ModelRanks(comm::Communicator& world, comm::Communicator* pipeline = nullptr,
                      std::int64_t stage_layers = 0)
      : world_(world), pipeline_(pipeline), stage_layers_(stage_layers) {}

  [[nodiscard]] comm::Communicator* pipeline() const { return pipeline_; }

  [[nodiscard]] ModelSplit split() const { return {world_.size(), stage_layers_}; }

  /// Makes the other ranks allocate a KV cache.
  void make_cache(std::int64_t num_blocks);
  /// Makes the other ranks compute the rows; then rank 0 must do the same.
  void compute_rows(const StepRows& rows);
  /// Makes the other ranks compute logits of hidden states [first, first + rows) of the last step.
  void logits(std::int64_t first, std::int64_t rows);

  /// Tells this object that rank 0 has completed the last computation.
  void end_step() { is_computing_ = false; }

  /// Runs `body`, then ends follow() on the other ranks with the same exit code. If `body` throws
  /// while no computation runs, throws AgreedError, so that all ranks exit by themselves. Otherwise
  /// rethrows, because the other ranks wait in a collective.
  int lead(const std::function<int()>& body);

 private:
  void send(std::vector<std::int64_t> message);

  comm::Communicator& world_;
  comm::Communicator* pipeline_;
  std::int64_t stage_layers_;
  bool is_computing_ = false;
};

/// Computes what rank 0 sends until rank 0 ends. Returns the exit code of rank 0. While there is
/// nothing to compute, the rank sleeps most of the time. `pipeline`: as in compute_rows().
int follow(model::Transformer& model, comm::Communicator& world,
           comm::Communicator* pipeline = nullptr);

}  // namespace trireme::generate
