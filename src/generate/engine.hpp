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

/// Continues texts: GenerationEngine, or a script in tests of `serve`. All functions may be called from
/// any thread.
class AnswerSource {
 public:
  virtual ~AnswerSource() = default;

  /// Returns what is wrong with a request; nullopt if submit takes the request.
  [[nodiscard]] virtual std::optional<RequestProblem> find_problem(
      const Request& request) const = 0;

  /// Queues a request. Returns nullopt if max_queue requests wait already; a request that `follows`
  /// an ended one of the same caller always has room. Throws Error(usage) with what find_problem says.
  virtual std::optional<RequestId> submit(Request request, OnDelta on_delta, bool follows) = 0;

  /// Ends a request at the next step with FinishReason::cancelled. Does nothing if it has ended.
  virtual void cancel(RequestId id) = 0;

  [[nodiscard]] virtual EngineCounters counters() const = 0;
};

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
/// One thread runs the steps.
class GenerationEngine final : public AnswerSource {
 public:
  /// All must outlive this. Throws Error(usage) for a budget without room for one text of max_context,
  /// Error(resource) where memory is not there.
  GenerationEngine(Transformer& model, const Tokenizer& tokenizer, const EngineConfig& config);
  GenerationEngine(const GenerationEngine&) = delete;
  GenerationEngine& operator=(const GenerationEngine&) = delete;
  ~GenerationEngine() override;

  [[nodiscard]] std::optional<RequestProblem> find_problem(const Request& request) const override;
  std::optional<RequestId> submit(Request request, OnDelta on_delta, bool follows = false) override;
  void cancel(RequestId id) override;

  /// One step. False: there was nothing to do. A request whose logits are not finite, or that finds no
  /// memory, ends alone with an error.
  bool step();

  /// Steps until `stop`, and sleeps where there is nothing to do. What is left then ends as cancelled.
  void run(std::stop_token stop);

  [[nodiscard]] EngineCounters counters() const override;
  /// As resolved: no zeros.
  [[nodiscard]] const EngineConfig& config() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
