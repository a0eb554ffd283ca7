#include "unit/serve/service_server.hpp"

namespace trireme::serve {
namespace {

using testing::ClientAnswer;
using testing::get;
using testing::HttpClient;
using testing::kTools;
using testing::post;
using testing::said;

class ServiceAnswers : public testing::ServiceServer {};

TEST_F(ServiceAnswers, AnswersAChat) {
  const Json reply = json(chat(R"("max_tokens": 5, "seed": 3)"));

  EXPECT_TRUE(reply.at("id").get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(reply.at("object"), "chat.completion");
  EXPECT_EQ(reply.at("model"), "tiny");
  EXPECT_EQ(reply.at("system_fingerprint"), "fp_1");
  EXPECT_TRUE(reply.at("created").is_number_integer());
  const Json& choice = reply.at("choices").at(0);
  EXPECT_EQ(choice.at("index"), 0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "Hello");
  EXPECT_FALSE(choice.at("message").contains("tool_calls"));
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const generate::Request asked = source_->last_request();
  EXPECT_EQ(asked.max_tokens, 5);
  EXPECT_EQ(asked.sampling.seed, 3);
  EXPECT_EQ(tokenizer().decode(asked.prompt),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(reply.at("usage").at("prompt_tokens"), asked.prompt.size());
  EXPECT_EQ(reply.at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(reply.at("usage").at("total_tokens"), asked.prompt.size() + 2);
}

TEST_F(ServiceAnswers, StreamsAChat) {
  const std::vector<Json> all =
      events(chat(R"("stream": true, "stream_options": {"include_usage": true})"));

  ASSERT_EQ(all.size(), 5U);  // role, two parts, end, usage
  EXPECT_EQ(all[0].at("choices")[0].at("delta"),
            Json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(all[1].at("choices")[0].at("delta"), Json::parse(R"({"content": "Hel"})"));
  EXPECT_EQ(all[2].at("choices")[0].at("delta"), Json::parse(R"({"content": "lo"})"));
  EXPECT_EQ(all[3].at("choices")[0].at("delta"), Json::object());
  EXPECT_EQ(all[3].at("choices")[0].at("finish_reason"), "stop");
  EXPECT_EQ(all[4].at("choices"), Json::array());
  EXPECT_EQ(all[4].at("usage").at("completion_tokens"), 2);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(all[i].at("usage").is_null());
    EXPECT_EQ(all[i].at("id"), all[0].at("id"));
    EXPECT_EQ(all[i].at("object"), "chat.completion.chunk");
    EXPECT_EQ(all[i].at("choices")[0].at("finish_reason").is_null(), i != 3);
  }
  EXPECT_FALSE(events(chat(R"("stream": true)"))[0].contains("usage"));
}

TEST_F(ServiceAnswers, GivesSeveralAnswers) {
  script = [](const generate::Request& request) {
    return said({"answer ", std::to_string(request.answer)}, generate::FinishReason::length);
  };
  const Json reply = json(chat(R"("n": 3)"));
  ASSERT_EQ(reply.at("choices").size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reply["choices"][i].at("index"), i);
    EXPECT_EQ(reply["choices"][i].at("message").at("content"), "answer " + std::to_string(i));
    EXPECT_EQ(reply["choices"][i].at("finish_reason"), "length");
  }
  EXPECT_EQ(reply.at("usage").at("completion_tokens"), 6);

  std::map<int, std::string> texts;
  for (const Json& event : events(chat(R"("n": 2, "stream": true)"))) {
    const Json& choice = event.at("choices")[0];
    texts[choice.at("index")] += choice.at("delta").value("content", "");
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "answer 0"}, {1, "answer 1"}}));
}

TEST_F(ServiceAnswers, TakesThoughtsAndCallsOutOfTheText) {
  script = [](const generate::Request&) {
    return said({"why", "\n</think>\n\nLet me add.\n<tool_", "call>\n{\"name\": \"add\", \"argu",
                 "ments\": {\"a\": 1}}\n</tool_call>"});
  };
  const std::string fields = kTools + R"(, "chat_template_kwargs": {"enable_thinking": true})";

  const Json reply = json(chat(fields));
  EXPECT_EQ(reply.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 1);
  const Json choice = reply.at("choices")[0];
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("reasoning_content"), "why");
  EXPECT_EQ(choice.at("message").at("content"), "Let me add.");
  const Json call = choice.at("message").at("tool_calls").at(0);
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "add");
  EXPECT_EQ(Json::parse(call.at("function").at("arguments").get<std::string>()), Json({{"a", 1}}));
  EXPECT_NE(tokenizer().decode(source_->last_request().prompt).find("\"name\": \"add\""),
            std::string::npos);

  std::string thought;
  std::string content;
  std::string reason;
  Json calls = Json::array();
  for (const Json& event : events(chat(fields + R"(, "stream": true)"))) {
    const Json& delta = event.at("choices")[0].at("delta");
    thought += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    for (const Json& each : delta.value("tool_calls", Json::array())) calls.push_back(each);
    if (!event["choices"][0]["finish_reason"].is_null())
      reason = event["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(thought, "why");
  EXPECT_EQ(content, "Let me add.");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].at("index"), 0);
  EXPECT_EQ(calls[0].at("function").at("name"), "add");
  EXPECT_EQ(reason, "tool_calls");

  const Json none = json(chat(kTools + R"(, "tool_choice": "none")")).at("choices")[0];
  EXPECT_EQ(none.at("finish_reason"), "stop");
  EXPECT_NE(none.at("message").at("content").get<std::string>().find("<tool_call>"),
            std::string::npos);
  EXPECT_EQ(tokenizer().decode(source_->last_request().prompt).find("add"), std::string::npos);
}

TEST_F(ServiceAnswers, EndsAChatAtTheTextThatIsNoToken) {
  json(chat(R"("stop": ["x"])"));
  EXPECT_EQ(source_->last_request().stop, std::vector<std::string>{"x"});
  start({}, "llama3");
  json(chat(R"("stop": ["x"])"));
  EXPECT_EQ(source_->last_request().stop, (std::vector<std::string>{"x", "<|eot_id|>"}));
  json(chat(R"("ignore_eos": true)"));
  EXPECT_TRUE(source_->last_request().stop.empty());
  json(chat(R"("response_format": {"type": "json_object"})"));
  EXPECT_TRUE(source_->last_request().stop.empty());
  json(completion(R"("prompt": "the")"));
  EXPECT_TRUE(source_->last_request().stop.empty());
}

TEST_F(ServiceAnswers, NamesTheKeywordOfASchemaThatItCannotHold) {
  const std::string mail = R"({"type": "object", "properties": {"to": {"type": "string",
                               "format": "iri"}}, "required": ["to"]})";
  EXPECT_EQ(json(chat(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n",
                         "strict": true, "schema": )" +
                      mail + "}}"),
                 400)
                .at("error")
                .at("param"),
            "response_format.json_schema.schema.properties.to.format");
  const auto tool = [&](const char* strict) {
    return R"("tool_choice": "required", "tools": [{"type": "function", "function": {"name": "send",
              "strict": )" +
           std::string(strict) + R"(, "parameters": )" + mail + "}}]";
  };
  EXPECT_EQ(json(chat(tool("true")), 400).at("error").at("param"),
            "tools[0].function.parameters.properties.to.format");
  EXPECT_EQ(ask(chat(tool("false"))).status, 200);
  // If the model chooses whether to call, a strict tool has a mask and any other tool has none.
  EXPECT_EQ(ask(chat(kTools)).status, 200);
  EXPECT_EQ(source_->last_request().mask, nullptr);
  EXPECT_EQ(ask(chat(R"("tools": [{"function": {"name": "add", "strict": true}}])")).status, 200);
  EXPECT_NE(source_->last_request().mask, nullptr);
}

TEST_F(ServiceAnswers, AStrictToolRestrictsNoThoughtThatTheModelOpens) {
  start({}, "qwen3");  // its prompt does not open a thought
  const std::string strict = R"("tools": [{"function": {"name": "add", "strict": true}}])";
  const auto is_free_after = [&](const std::string& text) {
    EXPECT_EQ(ask(chat(strict)).status, 200);
    const auto mask = source_->last_request().mask;
    for (const std::uint32_t id : tokenizer().encode(text)) mask->accept(id);
    std::vector<std::uint64_t> bits((static_cast<std::size_t>(vocab_size_) + 63) / 64, 0);
    return !mask->allow(bits, vocab_size_);
  };
  const std::string thought = "\n<think>\nis <tool_call> of use?";
  EXPECT_TRUE(is_free_after("\n<thi"));
  EXPECT_TRUE(is_free_after(thought));
  EXPECT_TRUE(is_free_after(thought + "\n</think>\n\nLet me add."));
  EXPECT_FALSE(is_free_after(thought + "\n</think>\n\nLet me add.<tool_call>"));
  EXPECT_FALSE(is_free_after("Let me <think> and add.<tool_call>"));
}

TEST_F(ServiceAnswers, OneCallEndsTheAnswerIfOneIsWanted) {
  const std::string one =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  script = [&](const generate::Request&) { return said(std::vector<std::string>(200, one)); };

  const Json reply = json(chat(kTools + R"(, "parallel_tool_calls": false, "logprobs": true)"));
  const Json& choice = reply.at("choices")[0];

  EXPECT_EQ(choice.at("message").at("tool_calls").size(), 1U);
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  // Tokens that were drawn before the engine was notified are not part of the answer.
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("logprobs").at("content").size(), 1U);
  EXPECT_EQ(reply.at("usage").at("completion_tokens"), 1);

  script = [&](const generate::Request&) {
    return said({one, one}, generate::FinishReason::length);
  };
  EXPECT_EQ(
      json(chat(kTools + R"(, "parallel_tool_calls": false)")).at("choices")[0].at("finish_reason"),
      "tool_calls");
}

TEST_F(ServiceAnswers, FormsAreMasks) {
  EXPECT_EQ(json(chat(R"("response_format": {"type": "json_object"})")).at("object"),
            "chat.completion");
  EXPECT_NE(source_->last_request().mask, nullptr);
  json(chat(kTools + R"(, "tool_choice": "required")"));
  EXPECT_NE(source_->last_request().mask, nullptr);
  json(chat(kTools));
  EXPECT_EQ(source_->last_request().mask, nullptr);

  const auto refused = [&](const std::string& fields) {
    return json(chat(fields), 400).at("error").at("param");
  };
  EXPECT_EQ(refused(R"("response_format": {"type": "json_schema", "json_schema": {"schema":
                       {"type": "object", "properties": {"a": {"not": {}}}}}})"),
            "response_format.json_schema.schema.properties.a.not");
  EXPECT_EQ(refused(R"("response_format": {"type": "json_object", "schema": {"not": {}}})"),
            "response_format.schema.not");
  EXPECT_EQ(refused(R"("response_format": {"type": "json_object"}, "ignore_eos": true)"),
            "ignore_eos");
}

TEST_F(ServiceAnswers, TellsLogProbabilities) {
  const Json content = json(chat(R"("logprobs": true, "top_logprobs": 2)"))
                           .at("choices")[0]
                           .at("logprobs")
                           .at("content");
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0].at("token"), tokenizer().decode(std::array{300U}));
  EXPECT_EQ(content[0].at("logprob"), -0.5);
  EXPECT_EQ(content[0].at("bytes").size(), tokenizer().token_bytes(300).size());
  EXPECT_EQ(content[0].at("top_logprobs").size(), 2U);
  EXPECT_EQ(source_->last_request().top_logprobs, 2);

  std::size_t streamed = 0;
  for (const Json& event : events(chat(R"("logprobs": true, "stream": true)"))) {
    const Json& logprobs = event.at("choices")[0].at("logprobs");
    if (!logprobs.is_null()) streamed += logprobs.at("content").size();
  }
  EXPECT_EQ(streamed, 2U);
}

TEST_F(ServiceAnswers, CompletesTexts) {
  const Json reply = json(completion(R"("prompt": ["the", "other"], "n": 2, "max_tokens": 4)"));
  EXPECT_EQ(reply.at("object"), "text_completion");
  EXPECT_TRUE(reply.at("id").get<std::string>().starts_with("cmpl-"));
  ASSERT_EQ(reply.at("choices").size(), 4U);
  EXPECT_EQ(reply["choices"][3].at("index"), 3);
  EXPECT_EQ(reply["choices"][3].at("text"), "Hello");
  EXPECT_EQ(reply["choices"][3].at("finish_reason"), "stop");
  EXPECT_EQ(source_->last_request().prompt, tokenizer().encode("other"));
  EXPECT_EQ(source_->last_request().answer, 1U);

  json(completion(R"("prompt": [[3, 4]])"));
  EXPECT_EQ(source_->last_request().prompt, (std::vector<std::uint32_t>{3, 4}));
  EXPECT_EQ(json(completion(R"("prompt": "the", "echo": true)")).at("choices")[0].at("text"),
            "theHello");

  std::string streamed;
  for (const Json& event : events(completion(R"("prompt": "the", "echo": true, "stream": true)")))
    streamed += event.at("choices")[0].at("text").get<std::string>();
  EXPECT_EQ(streamed, "theHello");
}

TEST_F(ServiceAnswers, EchoesThePromptsLogProbabilities) {
  script = [](const generate::Request& request) {
    std::vector<generate::Delta> deltas = said({" x"});
    for (const std::uint32_t id : request.prompt)
      deltas[0].prompt.push_back(
          {id, deltas[0].prompt.empty() ? std::nullopt : std::optional(-1.0F), {{9, -0.25F}}});
    return deltas;
  };
  const Json choice = json(completion(R"("prompt": [300, 301, 302], "echo": true, "logprobs": 1,
                                         "max_tokens": 1)"))
                          .at("choices")[0];
  const Json& logprobs = choice.at("logprobs");

  EXPECT_TRUE(source_->last_request().prompt_logprobs);
  EXPECT_TRUE(source_->last_request().ignore_eos);  // an end token has an entry, too
  EXPECT_EQ(logprobs.at("tokens").size(), 4U);
  EXPECT_TRUE(logprobs.at("token_logprobs")[0].is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs")[0].is_null());
  EXPECT_EQ(logprobs.at("token_logprobs")[1], -1.0);
  EXPECT_EQ(logprobs.at("token_logprobs")[3], -0.5);
  // The list has the most likely token, and the token itself.
  EXPECT_EQ(logprobs.at("top_logprobs")[1].size(), 2U);
  EXPECT_EQ(logprobs.at("text_offset")[0], 0);
  EXPECT_EQ(logprobs.at("text_offset").size(), 4U);

  EXPECT_EQ(source_->last_request().max_tokens, 1);
  json(completion(R"("prompt": "the", "echo": true, "max_tokens": 0)"));
  EXPECT_EQ(source_->last_request().max_tokens, 0);
  EXPECT_TRUE(source_->last_request().prompt_logprobs);
}

}  // namespace
}  // namespace trireme::serve
