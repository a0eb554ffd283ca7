#pragma once
#include <memory>
#include <optional>

#include "serve/grammar/answer_grammar.hpp"
#include "serve/openai/chat_request.hpp"
#include "serve/served_model.hpp"

/// From what a request asks for to what the engine is asked for.
namespace trireme {

/// The sampling settings; without a seed, a random one.
SamplingConfig sampling_of(const GenerationFields& fields);

/// The grammar that the format asks for; none: any text. ApiError(400) for a schema that has none.
std::optional<TextGrammar> grammar_of(const ResponseFormat& format);
/// Returns the grammar of a chat, whose answer may have to be calls. If the model may call a tool (auto)
/// and a tool is strict, it is the grammar of what follows an opened call.
std::optional<TextGrammar> grammar_of(const ChatRequest& request, bool several_calls);

/// Where in an answer its grammar begins.
struct FormPlace {
  bool after_thought = false;  // the answer begins in a thought
  bool if_called = false;      // behind the words that open a call; without a call nowhere
};

/// The mask of one answer to `request`. ApiError(400) where an answer could not end.
std::shared_ptr<TokenMask> mask_of(const TextGrammar& grammar, const ServedModel& model,
                                   const Request& request, const FormPlace& place);

/// finish_reason of an answer that ended well: "stop" or "length".
const char* reply_reason(FinishReason reason);

}  // namespace trireme
