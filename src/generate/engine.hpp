#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "generate/engine_config.hpp"
#include "generate/request.hpp"

namespace trireme {

class Tokenizer;
class Transformer;

using RequestId = std::uint64_t;

/// Continues many texts at once with one model. Requests join and leave at every step; a step
/// runs the model once, over a token of each text and a piece of the prompts that have just come, so
/// that a long one does not stall the others.
///
/// Keys and values lie in blocks of a fixed budget (kv_blocks.hpp). A text takes a block when it needs
/// one; where none is left, the request that came last gives up its own, waits, and is computed
/// again. Equal beginnings share blocks. What a request draws is a function of its prompt, settings,
/// seed and the weights, whatever else runs.
/// Source: Kwon et al., "PagedAttention", SOSP 2023; Yu et al., "Orca", OSDI 2022.
///
/// One thread runs the steps; submit, cancel and counters may be called from any.
class GenerationEngine {
 public:
  /// All must outlive this. Throws Error(usage) for a budget without room for one text of max_context,
  /// Error(resource) where memory is not there.
  GenerationEngine(Transformer& model, const Tokenizer& tokenizer, const EngineConfig& config);
  GenerationEngine(const GenerationEngine&) = delete;
  GenerationEngine& operator=(const GenerationEngine&) = delete;
  ~GenerationEngine();

  /// What is wrong with a request; none: submit takes it.
  [[nodiscard]] std::optional<RequestProblem> find_problem(const Request& request) const;

  /// Queues a request. None: max_queue wait already, and it does not follow one of the same caller that
  /// has ended. Throws Error(usage) with what find_problem says.
  std::optional<RequestId> submit(Request request, OnDelta on_delta, bool follows = false);

  /// Ends a request at the next step with FinishReason::cancelled; one that has ended: nothing.
  void cancel(RequestId id);

  /// One step. False: there was nothing to do. A request whose logits are not finite, or that finds no
  /// memory, ends alone with an error.
  bool step();

  /// Steps until `stop`, and sleeps where there is nothing to do. What is left then ends as cancelled.
  void run(std::stop_token stop);

  [[nodiscard]] EngineCounters counters() const;
  /// As resolved: no zeros.
  [[nodiscard]] const EngineConfig& config() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
