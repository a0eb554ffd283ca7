#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "generate/engine_config.hpp"
#include "generate/request.hpp"

namespace trireme::model {

class Transformer;

}  // namespace trireme::model

namespace trireme::text {

class Tokenizer;

}  // namespace trireme::text

namespace trireme::generate {

class ModelRanks;

using RequestId = std::uint64_t;

/// A thread-safe source of generated text: GenerationEngine, or a scripted one in tests of `serve`.
class AnswerSource {
 public:
  virtual ~AnswerSource() = default;

  /// Returns the first problem with a request; nullopt if submit() accepts the request.
  [[nodiscard]] virtual std::optional<RequestProblem> find_problem(
      const Request& request) const = 0;

  /// Queues a request. Returns nullopt if max_queue requests wait already, or if the source has
  /// ended. If `follows` is true, the request continues an earlier request that has ended, and
  /// max_queue does not apply. If find_problem() finds a problem, throws Error(usage) with this
  /// problem.
  virtual std::optional<RequestId> submit(Request request, OnDelta on_delta, bool follows) = 0;

  /// Ends a request with FinishReason::cancelled at the next step. Ignores finished requests.
  virtual void cancel(RequestId id) = 0;

  /// Returns true if no request is accepted any more.
  [[nodiscard]] virtual bool has_ended() const = 0;

  [[nodiscard]] virtual EngineCounters counters() const = 0;
};

/// Generates text for many requests at once with one model (continuous batching). Requests join and
/// leave at every step. One step runs the model once on one token of each decoding sequence and a
/// chunk of the new prompts. A long prompt therefore does not stall other sequences.
///
/// Keys and values are stored in blocks with a fixed memory budget (kv_blocks.hpp). A sequence
/// takes a block when it needs one. If none is free, the request that arrived last is preempted,
/// waits, and is computed again. Sequences with equal prefixes share blocks. The tokens of a
/// request depend only on its prompt, its settings, its seed and the weights. Other requests have
/// no influence. Sources: Kwon et al., "PagedAttention", SOSP 2023; Yu et al., "Orca", OSDI 2022.
///
/// One thread runs the steps.
class GenerationEngine final : public AnswerSource {
 public:
  /// All arguments must outlive the engine. Throws Error(usage) if the budget is too small for one
  /// sequence of max_context tokens, Error(resource) if memory cannot be allocated.
  /// `ranks`: the other ranks that hold parts of the model; null: this rank holds the whole model.
  GenerationEngine(model::Transformer& model, const text::Tokenizer& tokenizer,
                   const EngineConfig& config, ModelRanks* ranks = nullptr);
  GenerationEngine(const GenerationEngine&) = delete;
  GenerationEngine& operator=(const GenerationEngine&) = delete;
  ~GenerationEngine() override;

  [[nodiscard]] std::optional<RequestProblem> find_problem(const Request& request) const override;
  std::optional<RequestId> submit(Request request, OnDelta on_delta, bool follows = false) override;
  void cancel(RequestId id) override;
  [[nodiscard]] bool has_ended() const override;

  /// Runs one step. Returns false if there is nothing to do. If the logits of a request are not
  /// finite, only this request fails. If the forward pass throws (for example without free memory),
  /// all requests of this step fail. With several ranks, step() rethrows the error instead, because
  /// the other ranks may wait in a collective.
  bool step();

  /// Runs steps until `stop` is requested, sleeping while idle. Then cancels the remaining requests
  /// and accepts no more.
  void run(std::stop_token stop);

  [[nodiscard]] EngineCounters counters() const override;
  /// Returns the resolved configuration: no value is 0 for "default".
  [[nodiscard]] const EngineConfig& config() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::generate
