#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/engine.hpp"

namespace trireme {

struct Answer {
  std::string text;
  // generated tokens, without the end token that finished the answer
  std::vector<TokenReport> tokens;
  std::vector<TokenReport> prompt;  // only with prompt_logprobs
  FinishReason finish = FinishReason::error;
  std::optional<Error> error;
};

/// Called after each delta with the answer so far.
using OnAnswer = std::function<void(std::size_t index, const Delta& delta, const Answer& answer)>;

/// Runs all requests to completion in this thread. Returns the answers in the order of the
/// requests. The engine must have no other requests.
std::vector<Answer> answer_all(
    GenerationEngine& engine, std::vector<Request> requests,
    const OnAnswer& on_answer = [](auto, const auto&, const auto&) {});

}  // namespace trireme
