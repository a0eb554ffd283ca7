#include "generate/answer_all.hpp"

#include <utility>

#include "core/error.hpp"

namespace trireme::generate {

std::vector<Answer> answer_all(GenerationEngine& engine, std::vector<Request> requests,
                               const OnAnswer& on_answer, const std::function<bool()>& is_stopped) {
  std::vector<Answer> answers(requests.size());
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto taken = engine.submit(std::move(requests[i]), [&, i](const Delta& delta) {
      Answer& answer = answers[i];
      answer.text += delta.text;
      answer.tokens.insert(answer.tokens.end(), delta.tokens.begin(), delta.tokens.end());
      if (!delta.prompt.empty()) answer.prompt = delta.prompt;
      answer.sampled.insert(answer.sampled.end(), delta.sampled.begin(), delta.sampled.end());
      if (delta.finish) answer.finish = *delta.finish;
      answer.error = delta.error;
      on_answer(i, delta, answer);
    });
    TRIREME_ASSERT(taken);
    ids.push_back(*taken);
  }
  while (engine.step() && !is_stopped()) {
  }
  for (const RequestId id : ids) engine.cancel(id);
  while (engine.step()) {
  }
  return answers;
}

}  // namespace trireme::generate
