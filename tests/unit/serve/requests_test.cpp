#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/openai/api_error.hpp"
#include "serve/openai/chat_request.hpp"
#include "serve/openai/completion_request.hpp"

namespace trireme::serve {
namespace {

/// Reads a chat request with these further fields: R"("n": 2)".
ChatRequest chat_with(const std::string& fields) {
  return read_chat_request(R"({"messages": [{"role": "user", "content": "hi"}])" +
                           (fields.empty() ? "" : ", " + fields) + "}");
}

CompletionRequest completion_with(const std::string& fields) {
  return read_completion_request(R"({"prompt": "a")" + (fields.empty() ? "" : ", " + fields) + "}");
}

/// Returns the field that a refusal names, or "none".
template <class Body>
std::string refused(Body&& body) {
  try {
    body();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    const auto json = nlohmann::json::parse(error.body()).at("error");
    EXPECT_EQ(json.at("type"), "invalid_request_error");
    EXPECT_FALSE(json.at("message").get<std::string>().empty());
    return json.at("param").is_null() ? "null" : json.at("param").get<std::string>();
  }
  return "none";
}

std::string refused_in_chat(const std::string& fields) {
  return refused([&] { (void)chat_with(fields); });
}

std::string refused_in_completion(const std::string& fields) {
  return refused([&] { (void)completion_with(fields); });
}

const std::string kTool =
    R"({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}})";

TEST(ChatRequest, HasTheDefaultsOfOpenAI) {
  const ChatRequest request = chat_with("");

  EXPECT_EQ(request.fields.sampling.temperature, 1);
  EXPECT_EQ(request.fields.sampling.top_p, 1);
  EXPECT_EQ(request.fields.num_answers, 1);
  EXPECT_FALSE(request.fields.max_tokens);
  EXPECT_FALSE(request.fields.stream);
  EXPECT_FALSE(request.fields.has_seed);
  EXPECT_FALSE(request.logprobs);
  EXPECT_EQ(request.tool_choice, ToolChoice::none);
  EXPECT_FALSE(request.input.thinking);
}

TEST(ChatRequest, ReadsEveryField) {
  const ChatRequest request = chat_with(
      R"("model": "m", "temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "top_k": 7, "n": 3,
         "repetition_penalty": 1.1, "presence_penalty": -2, "frequency_penalty": 2, "seed": -5,
         "max_completion_tokens": 8, "stop": ["a", "b"], "stream": true,
         "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 20,
         "logit_bias": {"12": -100, "3": 0.5}, "ignore_eos": true, "user": "u",
         "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
         "chat_template_kwargs": {"enable_thinking": false}, "parallel_tool_calls": false)");

  EXPECT_EQ(request.fields.model, "m");
  EXPECT_EQ(request.fields.sampling.temperature, 0.5);
  EXPECT_EQ(request.fields.sampling.top_k, 7);
  EXPECT_EQ(request.fields.sampling.logit_bias,
            (std::map<std::uint32_t, double>{{3, 0.5}, {12, -100}}));
  EXPECT_EQ(request.fields.sampling.seed, -5);
  EXPECT_TRUE(request.fields.has_seed);
  EXPECT_EQ(request.fields.max_tokens, 8);
  EXPECT_EQ(request.fields.num_answers, 3);
  EXPECT_EQ(request.fields.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.fields.stream && request.fields.include_usage && request.fields.ignore_eos);
  EXPECT_EQ(request.fields.response_format.kind, ResponseFormat::Kind::json_schema);
  EXPECT_EQ(request.top_logprobs, 20);
  EXPECT_EQ(request.input.thinking, false);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(chat_with(R"("top_k": -1, "top_p": 0)").fields.sampling.top_k, 0);
  EXPECT_GT(chat_with(R"("top_p": 0)").fields.sampling.top_p, 0);
}

TEST(ChatRequest, NamesTheFieldThatIsWrong) {
  for (const auto& [fields, name] : std::vector<std::pair<std::string, std::string>>{
           {R"("temperature": "hot")", "temperature"},
           {R"("temperature": 100.5)", "temperature"},
           {R"("temperature": 1e-310)", "temperature"},
           {R"("temperature": -0.1)", "temperature"},
           {R"("top_p": 1.1)", "top_p"},
           {R"("min_p": 1)", "min_p"},
           {R"("top_k": 1.5)", "top_k"},
           {R"("top_k": -2)", "top_k"},
           {R"("n": 0)", "n"},
           {R"("n": 129)", "n"},
           {R"("n": true)", "n"},
           {R"("max_tokens": 0)", "max_tokens"},
           {R"("max_tokens": 9223372036854775808)", "max_tokens"},
           {R"("max_completion_tokens": -1)", "max_completion_tokens"},
           {R"("seed": 1e3)", "seed"},
           {R"("seed": 18446744073709551615)", "seed"},
           {R"("stop": ["a", "b", "c", "d", "e"])", "stop"},
           {R"("stop": "")", "stop"},
           {R"("stop": [1])", "stop"},
           {R"("stream": 1)", "stream"},
           {R"("stream_options": {"include_usage": true})", "stream_options"},
           {R"("stream": true, "stream_options": {"include_usage": 1})",
            "stream_options.include_usage"},
           {R"("logprobs": 1)", "logprobs"},
           {R"("top_logprobs": 3)", "top_logprobs"},
           {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
           {R"("logit_bias": [1])", "logit_bias"},
           {R"("logit_bias": {"a": 1})", "logit_bias"},
           {R"("logit_bias": {"1": 101})", "logit_bias"},
           {R"("logit_bias": {"-1": 1})", "logit_bias"},
           {R"("presence_penalty": 2.1)", "presence_penalty"},
           {R"("frequency_penalty": "x")", "frequency_penalty"},
           {R"("repetition_penalty": 0)", "repetition_penalty"},
           {R"("repetition_penalty": 1e-310)", "repetition_penalty"},
           {R"("ignore_eos": 0)", "ignore_eos"},
           {R"("response_format": "json")", "response_format"},
           {R"("response_format": {"type": "xml"})", "response_format.type"},
           {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
           {R"("response_format": {"type": "json_schema", "json_schema": {"schema": 1}})",
            "response_format.json_schema.schema"},
           {R"("chat_template_kwargs": {"enable_thinking": 1})",
            "chat_template_kwargs.enable_thinking"},
           {R"("reasoning_effort": "some")", "reasoning_effort"},
           {R"("tools": {})", "tools"},
           {R"("tools": [1])", "tools[0]"},
           {R"("tools": [{"type": "retrieval"}])", "tools[0].type"},
           {R"("tools": [{"type": "function", "function": {"name": "a b"}}])",
            "tools[0].function.name"},
           {R"("tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}])",
            "tools[0].function.parameters"},
           {R"("tool_choice": "required")", "tool_choice"},
           {R"("tool_choice": "some")", "tool_choice"},
           {R"("tools": [)" + kTool + R"(], "tool_choice": {"type": "function"})",
            "tool_choice.function.name"},
           {R"("tools": [)" + kTool +
                R"(], "tool_choice": {"type": "function", "function": {"name": "sub"}})",
            "tool_choice.function.name"},
           {R"("tools": [)" + kTool + R"(], "response_format": {"type": "json_object"})",
            "response_format"},
           {R"("parallel_tool_calls": "no")", "parallel_tool_calls"}}) {
    EXPECT_EQ(refused_in_chat(fields), name) << fields;
  }
}

TEST(ChatRequest, NamesFieldsThatAreKnownAndNotSupported) {
  for (const std::string name :
       {"functions", "function_call", "audio", "prediction", "web_search_options", "suffix",
        "guided_json", "grammar", "stop_token_ids", "min_tokens", "best_of", "repeat_penalty",
        "n_predict", "top_n_sigma", "return_token_ids"}) {
    EXPECT_EQ(refused_in_chat("\"" + name + "\": 7"), name);
  }
  EXPECT_EQ(refused_in_chat(R"("modalities": ["text", "audio"])"), "modalities");
  EXPECT_EQ(refused_in_chat(R"("store": true)"), "store");
  // Values without effect are accepted.
  EXPECT_EQ(refused_in_chat(R"("functions": [], "function_call": null, "modalities": ["text"],
                               "store": false, "min_tokens": 0, "service_tier": "auto",
                               "typical_p": 1.0, "best_of": 1, "suffix": null)"),
            "none");
}

TEST(ChatRequest, NamesUnknownFields) {
  for (const auto& [fields, name] : std::vector<std::pair<std::string, std::string>>{
           {R"("top_kk": 5)", "top_kk"},
           {R"("prompt": "a")", "prompt"},
           {R"("echo": true)", "echo"},
           {R"("stream": true, "stream_options": {"include_usag": true})",
            "stream_options.include_usag"},
           {R"("stream": true, "stream_options": {"continuous_usage_stats": true})",
            "stream_options.continuous_usage_stats"},
           {R"("chat_template_kwargs": {"enable_thinkin": true})",
            "chat_template_kwargs.enable_thinkin"},
           {R"("response_format": {"type": "text", "schema": {}})", "response_format.schema"},
           {R"("response_format": {"type": "json_object", "scheme": {}})",
            "response_format.scheme"},
           {R"("response_format": {"type": "json_schema",
                                   "json_schema": {"name": "n", "schema": {}, "strickt": true}})",
            "response_format.json_schema.strickt"},
           {R"("tools": [{"type": "function", "strictt": true, "function": {"name": "add"}}])",
            "tools[0].strictt"},
           {R"("tools": [{"type": "function", "function": {"name": "add", "paramters": {}}}])",
            "tools[0].function.paramters"},
           {"\"tools\": [" + kTool + R"(], "tool_choice": {"type": "function", "name": "add",
                                                       "function": {"name": "add"}})",
            "tool_choice.name"}}) {
    EXPECT_EQ(refused_in_chat(fields), name) << fields;
  }
  try {
    (void)chat_with(R"("top_kk": 5)");
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_STREQ(error.what(),
                 "Unrecognized request argument supplied: top_kk; did you mean 'top_k'?");
  }
  const auto message = [](const std::string& fields) {
    return refused([&] {
      (void)read_chat_request(R"({"messages": [{"role": "user", "content": "hi"}, {"role":
                              "assistant", "content": "ho", )" +
                              fields + "}]}");
    });
  };
  EXPECT_EQ(message(R"("weight": 0)"), "messages[1].weight");
  EXPECT_EQ(message(R"("refusal": "no")"), "messages[1].refusal");
  EXPECT_EQ(message(R"("function_call": {"name": "f", "arguments": "{}", "x": 1})"),
            "messages[1].function_call.x");
  // Fields of the answers of OpenAI and of this server, and fields that lm-evaluation-harness adds.
  EXPECT_EQ(message(R"("refusal": null, "annotations": [], "audio": null, "function_call": null,
                       "reasoning_content": "why", "type": "text", "name": "x")"),
            "none");
}

TEST(ChatRequest, NamesUnknownFieldsWithinContentPartsAndToolCalls) {
  const auto part = [](const std::string& given) {
    return refused([&] {
      (void)read_chat_request(R"({"messages": [{"role": "user", "content": [{"type": "text",
                                  "text": "a"}, )" +
                              given + "]}]}");
    });
  };
  EXPECT_EQ(part(R"({"type": "text", "text": "b", "colour": 1})"), "messages[0].content[1].colour");
  EXPECT_EQ(part(R"({"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}})"),
            "none");
  EXPECT_EQ(part(R"({"type": "text", "text": "b", "colour": null})"), "none");

  const auto call = [](const std::string& given) {
    return refused([&] {
      (void)read_chat_request(R"({"messages": [{"role": "user", "content": "a"}, {"role":
                                  "assistant", "content": null, "tool_calls": [)" +
                              given +
                              R"(]}, {"role": "tool", "tool_call_id": "1", "content": "3"}]})");
    });
  };
  const std::string function = R"("function": {"name": "f", "arguments": "{}"})";
  EXPECT_EQ(call(R"({"index": 0, "id": "1", "type": "function", )" + function + "}"), "none");
  EXPECT_EQ(call(R"({"name": "f", "arguments": {}})"), "none");
  EXPECT_EQ(call(R"({"colour": 1, )" + function + "}"), "messages[1].tool_calls[0].colour");
  EXPECT_EQ(call(R"({"name": "f", "arguments": {}, "colour": 1})"),
            "messages[1].tool_calls[0].colour");
  EXPECT_EQ(call(R"({"type": "code", )" + function + "}"), "messages[1].tool_calls[0].type");
  EXPECT_EQ(call(R"({"function": {"name": "f", "arguments": "{}", "colour": 1}})"),
            "messages[1].tool_calls[0].function.colour");
  EXPECT_EQ(refused([] {
              (void)read_chat_request(R"({"messages": [{"role": "user", "content": "a",
                                          "tool_calls": [{"name": "f", "arguments": {}}]}]})");
            }),
            "messages[0].tool_calls");
  EXPECT_EQ(refused_in_chat(R"("tools": [{"function": {"name": "f"}}], "tool_choice": {"type":
                               "function", "function": {"name": "f", "colour": 1}})"),
            "tool_choice.function.colour");
}

TEST(ChatRequest, RefusesTwoDifferentLimitsOfTokens) {
  EXPECT_EQ(refused_in_chat(R"("max_tokens": 9, "max_completion_tokens": 8)"), "max_tokens");
  EXPECT_EQ(refused_in_chat(R"("max_tokens": 8, "max_completion_tokens": 8)"), "none");
}

TEST(ChatRequest, TakesFieldsThatChangeNoAnswer) {
  EXPECT_EQ(refused_in_chat(R"("user": "u", "metadata": {"a": "b"}, "prompt_cache_key": "k",
                               "prompt_cache_retention": "24h", "safety_identifier": "s",
                               "service_tier": "default", "store": false, "verbosity": "medium",
                               "parallel_tool_calls": true, "reasoning_effort": "low",
                               "cache_prompt": true, "top_kk": null, "stream": true,
                               "stream_options": {"include_obfuscation": false})"),
            "none");
  // lm-evaluation-harness (local-completions) and vLLM's benchmark send these fields.
  EXPECT_EQ(refused_in_completion(R"("model": "m", "max_tokens": 1, "temperature": 0,
                                     "logprobs": 1, "seed": 1234, "echo": true, "stop": ["a"],
                                     "stream": true, "stream_options": {"include_usage": true},
                                     "repetition_penalty": 1.0, "ignore_eos": true)"),
            "none");
  EXPECT_EQ(refused_in_completion(R"("max_completion_tokens": 9)"), "max_completion_tokens");
  EXPECT_EQ(refused_in_completion(R"("messages": [])"), "messages");
}

TEST(ChatRequest, NullIsAbsent) {
  EXPECT_EQ(refused_in_chat(R"("temperature": null, "n": null, "stop": null, "tools": null,
                               "tool_choice": null, "seed": null, "stream_options": null,
                               "response_format": null, "logit_bias": null, "model": null)"),
            "none");
}

TEST(ChatRequest, ReadsToolsAndTheChoice) {
  const std::string tools = "\"tools\": [" + kTool + "]";

  const ChatRequest automatic = chat_with(tools);
  EXPECT_EQ(automatic.tool_choice, ToolChoice::automatic);
  ASSERT_EQ(automatic.input.tools.size(), 1U);
  EXPECT_EQ(automatic.input.tools[0].name, "add");
  EXPECT_EQ(automatic.input.conversation.tools.size(), 1U);

  EXPECT_FALSE(automatic.input.tools[0].is_strict);
  EXPECT_TRUE(chat_with(R"("tools": [{"function": {"name": "a", "strict": true}}])")
                  .input.tools[0]
                  .is_strict);

  const ChatRequest none = chat_with(tools + R"(, "tool_choice": "none")");
  EXPECT_EQ(none.tool_choice, ToolChoice::none);
  EXPECT_TRUE(none.input.conversation.tools.empty());  // the model does not see them

  EXPECT_EQ(chat_with(tools + R"(, "tool_choice": "required")").tool_choice, ToolChoice::required);
  const ChatRequest named =
      chat_with(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "add"}})");
  EXPECT_EQ(named.tool_choice, ToolChoice::required);
  EXPECT_EQ(named.tool_name, "add");
}

TEST(ChatRequest, ReadsWhetherToThink) {
  const auto thinking = [](const std::string& fields) { return chat_with(fields).input.thinking; };
  EXPECT_EQ(thinking(R"("chat_template_kwargs": {"enable_thinking": true})"), true);
  EXPECT_EQ(thinking(R"("chat_template_kwargs": {"open_thinking": false})"), false);
  EXPECT_EQ(thinking(R"("chat_template_kwargs": {"enable_thinking": false, "open_thinking": true},
                       "open_thinking": true, "reasoning_effort": "low")"),
            false);
  EXPECT_EQ(thinking(R"("open_thinking": true)"), true);
  EXPECT_EQ(thinking(R"("reasoning_effort": "none")"), false);
  EXPECT_EQ(thinking(R"("reasoning_effort": "low")"), true);
}

TEST(ChatRequest, SaysThatTheListOfMessagesMustNotBeEmpty) {
  try {
    (void)read_chat_request(R"({"messages": []})");
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(std::string(error.what()),
              "messages is an empty list, must hold at least one message");
  }
}

TEST(ChatRequest, RefusesWhatIsNoChat) {
  const auto field = [](const std::string& body) {
    return refused([&] { (void)read_chat_request(body); });
  };
  EXPECT_EQ(field(""), "null");
  EXPECT_EQ(field("{"), "null");
  EXPECT_EQ(field("[]"), "null");
  EXPECT_EQ(field("{\"messages\": [], \"messages\": []}"), "null");
  EXPECT_EQ(field("{\"messages\": [{\"role\": \"user\", \"content\": \"\xFF\"}]}"), "null");
  EXPECT_EQ(field(std::string(100'000, '[')), "null");
  EXPECT_EQ(field("{}"), "messages");
  EXPECT_EQ(field(R"({"messages": []})"), "messages");
  EXPECT_EQ(field(R"({"messages": "hi"})"), "messages");
  EXPECT_EQ(field(R"({"messages": [{"role": "bot", "content": "x"}]})"), "messages");
  EXPECT_EQ(field(R"({"messages": [{"role": "user"}]})"), "messages");
  EXPECT_EQ(field(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"),
            "messages");
}

TEST(CompletionRequest, TakesTextsAndIds) {
  const auto prompts = [](const std::string& prompt) {
    return read_completion_request(R"({"prompt": )" + prompt + "}").prompts;
  };
  EXPECT_EQ(prompts(R"("a")"), (std::vector<CompletionPrompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a", "b"])").size(), 2U);
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<CompletionPrompt>{std::vector<std::uint32_t>{1, 2}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]").size(), 2U);
  for (const char* wrong :
       {"1", "[]", "[[]]", "[-1]", "[1, \"a\"]", "[null]", "{}", "[4294967296]", "[1.5]", "true"}) {
    EXPECT_EQ(refused([&] { (void)prompts(wrong); }), "prompt") << wrong;
  }
  EXPECT_EQ(refused([] { (void)read_completion_request("{}"); }), "prompt");
}

TEST(CompletionRequest, ReadsItsOwnFields) {
  EXPECT_EQ(completion_with("").fields.max_tokens, 16);
  const CompletionRequest request =
      completion_with(R"("echo": true, "logprobs": 5, "max_tokens": 0)");
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.logprobs, 5);
  EXPECT_EQ(refused_in_completion(R"("max_tokens": 0)"), "max_tokens");
  EXPECT_EQ(refused_in_completion(R"("logprobs": 21)"), "logprobs");
  EXPECT_EQ(refused_in_completion(R"("logprobs": true)"), "logprobs");
  EXPECT_EQ(refused_in_completion(R"("echo": 1)"), "echo");
  EXPECT_EQ(refused_in_completion(R"("suffix": "x")"), "suffix");
  EXPECT_EQ(refused_in_completion(R"("best_of": 3)"), "best_of");
  EXPECT_EQ(refused_in_completion(R"("n": 3, "best_of": 3)"), "none");
}

TEST(ApiError, IsValidJsonWhateverItHolds) {
  const ApiError error(429, "bad \xFF \"text\"\n", "", "queue_full");
  const auto json = nlohmann::json::parse(error.body()).at("error");
  EXPECT_EQ(json.at("type"), "rate_limit_error");
  EXPECT_EQ(json.at("code"), "queue_full");
  EXPECT_TRUE(json.at("param").is_null());
}

}  // namespace
}  // namespace trireme::serve
