#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/engine.hpp"

namespace trireme::generate {

struct Answer {
  std::string text;
  std::vector<TokenReport> tokens;    // generated, without the final end token
  std::vector<TokenReport> prompt;    // only with prompt_logprobs
  std::vector<SampledToken> sampled;  // only with sampled_logprobs; includes the end token
  FinishReason finish = FinishReason::error;
  std::optional<Error> error;
};

/// Called after each delta with the answer so far.
using OnAnswer = std::function<void(std::size_t index, const Delta& delta, const Answer& answer)>;

/// Runs all requests to completion in this thread. Returns the answers in the order of the
/// requests. The engine must have no other requests. `is_stopped` is called after each step; once
/// it returns true, unfinished requests end with FinishReason::cancelled.
std::vector<Answer> answer_all(
    GenerationEngine& engine, std::vector<Request> requests,
    const OnAnswer& on_answer = [](auto, const auto&, const auto&) {},
    const std::function<bool()>& is_stopped = [] { return false; });

}  // namespace trireme::generate
