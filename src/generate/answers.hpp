#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/engine.hpp"

namespace trireme {

/// All that one request gave.
struct Answer {
  std::string text;
  std::vector<TokenReport> tokens;  // drawn, without the end token that ended it
  std::vector<TokenReport> prompt;  // with prompt_logprobs
  FinishReason finish = FinishReason::error;
  std::optional<Error> error;
};

/// What one request has given so far, behind a piece that came.
using OnAnswer = std::function<void(std::size_t index, const Delta& delta, const Answer& answer)>;

/// Runs all requests to their ends in this thread; answers in their order. The engine must have no
/// other requests.
std::vector<Answer> answer_all(
    GenerationEngine& engine, std::vector<Request> requests,
    const OnAnswer& on_answer = [](auto, const auto&, const auto&) {});

}  // namespace trireme
