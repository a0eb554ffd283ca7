#include "generate/answers.hpp"

#include "core/error.hpp"

namespace trireme {

std::vector<Answer> answer_all(GenerationEngine& engine, std::vector<Request> requests,
                               const OnAnswer& on_answer) {
  std::vector<Answer> answers(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto taken = engine.submit(std::move(requests[i]), [&, i](const Delta& delta) {
      Answer& answer = answers[i];
      answer.text += delta.text;
      answer.tokens.insert(answer.tokens.end(), delta.tokens.begin(), delta.tokens.end());
      if (!delta.prompt.empty()) answer.prompt = delta.prompt;
      if (delta.finish) answer.finish = *delta.finish;
      answer.error = delta.error;
      on_answer(i, delta, answer);
    });
    TRIREME_ASSERT(taken);
  }
  while (engine.step()) {
  }
  return answers;
}

}  // namespace trireme
