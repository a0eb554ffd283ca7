#pragma once
#include <cstdint>
#include <optional>

#include "generate/engine.hpp"

namespace trireme {

/// What continues texts: GenerationEngine without LibTorch, or in a test a script. All from any thread.
class AnswerSource {
 public:
  virtual ~AnswerSource() = default;

  [[nodiscard]] virtual std::optional<RequestProblem> find_problem(
      const Request& request) const = 0;
  /// None: the queue is full. One that `follows` an answer of the same peer that has ended always has
  /// room.
  virtual std::optional<RequestId> submit(Request request, OnDelta on_delta, bool follows) = 0;
  virtual void cancel(RequestId id) = 0;
  [[nodiscard]] virtual EngineCounters counters() const = 0;
};

}  // namespace trireme
