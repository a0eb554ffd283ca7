#pragma once
#include <cstddef>
#include <vector>

#include "generate/request.hpp"
#include "serve/openai/chat_request.hpp"
#include "serve/served_model.hpp"
#include "serve/tools/answer_parser.hpp"

namespace trireme::serve {

/// The requests to the engine that answer a chat, one for each answer.
struct ChatPlan {
  std::vector<generate::Request> requests;
  std::size_t num_prompt_tokens = 0;
  AnswerForm form;  // splits the text of an answer
};

/// Writes the prompt of a chat and sets sampling, end tokens and grammar. Throws ApiError(400).
ChatPlan plan_chat(const ServedModel& model, const ChatRequest& request);

}  // namespace trireme::serve
