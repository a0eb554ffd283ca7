#include "serve/service.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "serve/http/http_server.hpp"
#include "unit/serve/http_client.hpp"
#include "unit/serve/scripted_source.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme {
namespace {

using testing::ClientAnswer;
using testing::get;
using testing::HttpClient;
using testing::post;
using testing::said;
using testing::ScriptedSource;

/// The whole server but for the engine, over real connections.
class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { start({}, "minimind-v3"); }

  void start(ServiceConfig config, const char* chat_format) {
    server_.reset();
    source_ = std::make_unique<ScriptedSource>(
        [this](const Request& request) { return script(request); });
    ModelFacts facts{.name = "tiny",
                     .fingerprint = "fp_1",
                     .created = 5,
                     .max_context = 1000,
                     .vocab_size = 700,
                     .end_tokens = {*tokenizer().eos_id()},
                     .chat = *chat_format == '\0' ? nullptr : &chat_template(chat_format)};
    model_ = std::make_unique<ServedModel>(facts, tokenizer(), *source_);
    service_ = std::make_unique<Service>(config);
    server_ = std::make_unique<HttpServer>(
        HttpConfig{},
        HttpHandlers{.refuse = [this](const HttpHead& head) { return service_->refuse(head); },
                     .handle =
                         [this](HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
                           service_->handle(std::move(request), reply);
                         },
                     .error_body =
                         [](int status, std::string_view message) {
                           return ApiError(status, std::string(message)).body();
                         }});
    server_->start();
    if (opens_) service_->open(*model_);
  }

  void TearDown() override {
    source_.reset();  // as the engine ends before the connections
    server_.reset();
  }

  static const Tokenizer& tokenizer() {
    static const Tokenizer value = samples::small_tokenizer();
    return value;
  }

  ClientAnswer ask(const std::string& bytes) {
    HttpClient client(server_->port());
    client.send(bytes);
    return client.answer();
  }

  Json json(const std::string& bytes, int status = 200) {
    const ClientAnswer answer = ask(bytes);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(HttpClient::header(answer.head, "content-type"), "application/json");
    return Json::parse(answer.body, nullptr, false);
  }

  static std::string chat(const std::string& fields = "") {
    return post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}])" +
                                            (fields.empty() ? "" : ", " + fields) + "}");
  }

  static std::string completion(const std::string& fields) {
    return post("/v1/completions", "{" + fields + "}");
  }

  /// The events of a stream, which must end as it should.
  std::vector<Json> events(const std::string& bytes) {
    const ClientAnswer answer = ask(bytes);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(HttpClient::header(answer.head, "content-type"), "text/event-stream; charset=utf-8");
    EXPECT_TRUE(answer.is_whole && answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
    std::vector<Json> events;
    std::string_view rest = answer.body;
    for (std::size_t end = 0; (end = rest.find("\n\n")) != std::string_view::npos;) {
      EXPECT_TRUE(rest.starts_with("data: "));
      const std::string_view data = rest.substr(6, end - 6);
      if (data != "[DONE]") events.push_back(Json::parse(data));
      rest.remove_prefix(end + 2);
    }
    return events;
  }

  bool opens_ = true;
  std::function<std::vector<Delta>(const Request&)> script = [](const Request&) {
    return said({"Hel", "lo"});
  };
  std::unique_ptr<ScriptedSource> source_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
};

const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
       "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])";

TEST_F(ServiceTest, AnswersAChat) {
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
  const Request asked = source_->last_request();
  EXPECT_EQ(asked.max_tokens, 5);
  EXPECT_EQ(asked.sampling.seed, 3);
  EXPECT_EQ(tokenizer().decode(asked.prompt),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(reply.at("usage").at("prompt_tokens"), asked.prompt.size());
  EXPECT_EQ(reply.at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(reply.at("usage").at("total_tokens"), asked.prompt.size() + 2);
}

TEST_F(ServiceTest, StreamsAChat) {
  const std::vector<Json> all =
      events(chat(R"("stream": true, "stream_options": {"include_usage": true})"));

  ASSERT_EQ(all.size(), 5U);  // role, two pieces, end, usage
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

TEST_F(ServiceTest, GivesSeveralAnswers) {
  script = [](const Request& request) {
    return said({"answer ", std::to_string(request.answer)}, FinishReason::length);
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

TEST_F(ServiceTest, TakesThoughtsAndCallsOutOfTheText) {
  script = [](const Request&) {
    return said({"why", "\n</think>\n\nLet me add.\n<tool_", "call>\n{\"name\": \"add\", \"argu",
                 "ments\": {\"a\": 1}}\n</tool_call>"});
  };
  const std::string fields = kTools + R"(, "chat_template_kwargs": {"enable_thinking": true})";

  const Json choice = json(chat(fields)).at("choices")[0];
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

TEST_F(ServiceTest, OneCallEndsTheAnswerIfOneIsWanted) {
  const std::string one =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  script = [&](const Request&) { return said({one, one, one, one}); };
  source_->pause_ms = 5;

  const Json message =
      json(chat(kTools + R"(, "parallel_tool_calls": false)")).at("choices")[0].at("message");

  EXPECT_EQ(message.at("tool_calls").size(), 1U);
  EXPECT_TRUE(message.at("content").is_null());
}

TEST_F(ServiceTest, FormsAreMasks) {
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
                       {"type": "object", "properties": {"a": {"pattern": "x"}}}}})"),
            "response_format.json_schema.schema.properties.a.pattern");
  EXPECT_EQ(refused(R"("response_format": {"type": "json_object"}, "ignore_eos": true)"),
            "ignore_eos");
}

TEST_F(ServiceTest, TellsLogProbabilities) {
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

TEST_F(ServiceTest, CompletesTexts) {
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

TEST_F(ServiceTest, EchoesThePromptsLogProbabilities) {
  script = [](const Request& request) {
    std::vector<Delta> deltas = said({" x"});
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
  EXPECT_EQ(logprobs.at("top_logprobs")[1].size(), 2U);  // the likeliest, and the token itself
  EXPECT_EQ(logprobs.at("text_offset")[0], 0);
  EXPECT_EQ(logprobs.at("text_offset").size(), 4U);

  EXPECT_EQ(source_->last_request().max_tokens, 1);
  json(completion(R"("prompt": "the", "echo": true, "max_tokens": 0)"));
  EXPECT_EQ(source_->last_request().max_tokens, 0);
  EXPECT_TRUE(source_->last_request().prompt_logprobs);
}

TEST_F(ServiceTest, ToldWhatIsWrong) {
  const auto error = [&](const std::string& bytes, int status) {
    return json(bytes, status).at("error");
  };
  EXPECT_EQ(error(get("/v2/models"), 404).at("code"), "not_found");
  for (const char* path : {"/../etc/passwd", "/page/../../x", "/page/%2e%2e/x", "//", "/v1/models/",
                           "/v1/chat/completions/", "/page/README.md"})
    EXPECT_EQ(error(get(path), 404).at("type"), "invalid_request_error") << path;
  EXPECT_EQ(error(get("/v1/chat/completions"), 405).at("code"), "method_not_allowed");
  EXPECT_EQ(error(post("/health", ""), 405).at("type"), "invalid_request_error");
  EXPECT_EQ(HttpClient::header(ask(post("/metrics", "")).head, "allow"), "GET, HEAD");
  EXPECT_EQ(error(chat(R"("model": "other")"), 404).at("param"), "model");
  EXPECT_EQ(error(get("/v1/models/other"), 404).at("code"), "model_not_found");
  EXPECT_EQ(error(post("/v1/chat/completions", "{"), 400).at("code"), "invalid_json");
  EXPECT_EQ(error(post("/v1/chat/completions", std::string(100'000, '[')), 400).at("code"),
            "invalid_json");
  EXPECT_EQ(error(chat(R"("n": "x")"), 400).at("param"), "n");
  source_->max_context = 3;
  EXPECT_EQ(error(chat(), 400).at("param"), "messages");
  EXPECT_EQ(error(completion(R"("prompt": [1, 2, 3, 4])"), 400).at("param"), "prompt");
}

TEST_F(ServiceTest, FailsWithTheStatusOfWhatWentWrong) {
  script = [](const Request&) {
    std::vector<Delta> deltas(1);
    deltas[0].finish = FinishReason::error;
    deltas[0].error = Error(ErrorKind::numeric, "the logits are not finite");
    return deltas;
  };
  for (const char* fields : {"", R"("stream": true)"}) {  // nothing of the stream was sent yet
    const Json error = json(chat(fields), 500).at("error");
    EXPECT_EQ(error.at("type"), "server_error");
    EXPECT_EQ(error.at("message"), "the logits are not finite");
  }
  script = [](const Request&) {
    std::vector<Delta> deltas = said({"He"});
    deltas[1].finish = FinishReason::error;
    deltas[1].error = Error(ErrorKind::numeric, "not finite");
    return deltas;
  };
  const std::vector<Json> streamed = events(chat(R"("stream": true)"));
  EXPECT_EQ(streamed.back().at("error").at("message"), "not finite");
}

TEST_F(ServiceTest, TheQueueHasAnEnd) {
  source_->max_queue = 2;
  source_->is_endless = true;
  source_->pause_ms = 2;
  HttpClient first(server_->port());
  HttpClient second(server_->port());
  for (HttpClient* client : {&first, &second}) {
    client->send(chat(R"("stream": true)"));
    client->wait_for("Hel");
  }

  const ClientAnswer third = ask(chat());

  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(HttpClient::header(third.head, "retry-after"), "1");
  EXPECT_EQ(Json::parse(third.body).at("error").at("code"), "queue_full");
  // More answers than have room are made one after another.
  source_->is_endless = false;
  first.wait_for("[DONE]");
  second.wait_for("[DONE]");
  EXPECT_EQ(json(chat(R"("n": 7)")).at("choices").size(), 7U);
}

TEST_F(ServiceTest, WhoGoesAwayIsNotWorkedFor) {
  source_->is_endless = true;
  source_->pause_ms = 1;
  for (const char* fields : {R"("stream": true, "n": 3)", R"("n": 2)"}) {
    {
      HttpClient client(server_->port());
      client.send(chat(fields));
      for (int i = 0; i < 500 && source_->counters().running == 0; ++i) ::usleep(2000);
      EXPECT_GT(source_->counters().running, 0);
      client.vanish();
    }
    for (int i = 0; i < 1000 && source_->counters().running > 0; ++i) ::usleep(2000);
    EXPECT_EQ(source_->counters().running, 0) << fields;
  }
}

TEST_F(ServiceTest, WhatTakesTooLongEnds) {
  start({.request_timeout_s = 0.1}, "minimind-v3");
  source_->is_endless = true;
  source_->pause_ms = 1;
  EXPECT_EQ(json(chat(), 408).at("error").at("type"), "timeout_error");
  EXPECT_EQ(events(chat(R"("stream": true)")).back().at("error").at("type"), "timeout_error");
  for (int i = 0; i < 1000 && source_->counters().running > 0; ++i) ::usleep(2000);
  EXPECT_EQ(source_->counters().running, 0);
}

TEST_F(ServiceTest, OpensAndDrains) {
  opens_ = false;
  start({}, "minimind-v3");
  EXPECT_EQ(json(get("/health"), 503).at("error").at("code"), "loading");
  EXPECT_EQ(json(chat(), 503).at("error").at("code"), "loading");
  EXPECT_EQ(ask(get("/")).status, 200);

  service_->open(*model_);
  EXPECT_EQ(json(get("/health")), Json({{"status", "ok"}}));
  source_->is_endless = true;
  source_->pause_ms = 2;
  HttpClient running(server_->port());
  running.send(chat(R"("stream": true)"));
  running.wait_for("Hel");
  service_->drain();
  EXPECT_EQ(json(get("/health"), 503).at("error").at("code"), "draining");
  EXPECT_EQ(json(chat(), 503).at("error").at("code"), "draining");
  source_->is_endless = false;
  EXPECT_NE(running.wait_for("[DONE]").find("[DONE]"), std::string_view::npos);
}

TEST_F(ServiceTest, WantsTheTokenForAllButThePage) {
  start({.access = {.token = "secret"}}, "minimind-v3");
  EXPECT_EQ(ask(get("/")).status, 200);
  EXPECT_EQ(ask(get("/health")).status, 200);
  for (const std::string& bytes : {get("/v1/models"), get("/metrics"), chat(), get("/nowhere"),
                                   post("/tokenize", R"({"content": ""})")})
    EXPECT_EQ(json(bytes, 401).at("error").at("code"), "invalid_api_key");
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(json(get("/v1/models", "Authorization: Bearer secret\r\nOrigin: http://evil\r\n"), 403)
                .at("error")
                .at("type"),
            "permission_error");
}

TEST_F(ServiceTest, ThePageLoadsNothingButItself) {
  const ClientAnswer page = ask(get("/"));
  EXPECT_EQ(HttpClient::header(page.head, "content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(
      HttpClient::header(page.head, "content-security-policy").starts_with("default-src 'none'"));
  EXPECT_EQ(HttpClient::header(page.head, "x-content-type-options"), "nosniff");
  EXPECT_NE(page.body.find("<html"), std::string::npos);
}

TEST_F(ServiceTest, TellsItsModelTokensAndTemplate) {
  EXPECT_EQ(json(get("/v1/models")).at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(json(get("/v1/models/tiny")).at("meta").at("n_ctx"), 1000);

  const Json tokens = json(post("/tokenize", R"({"content": "the <|im_end|> 你"})")).at("tokens");
  EXPECT_EQ(tokens.get<std::vector<std::uint32_t>>(), tokenizer().encode("the <|im_end|> 你"));
  EXPECT_EQ(json(post("/detokenize", Json({{"tokens", tokens}}).dump())).at("content"),
            "the <|im_end|> 你");
  EXPECT_GT(json(post("/tokenize", R"({"content": "<|im_end|>", "parse_special": false})"))
                .at("tokens")
                .size(),
            1U);
  EXPECT_EQ(json(post("/tokenize", R"({"content": "the", "with_pieces": true})"))
                .at("tokens")[0]
                .at("piece"),
            "the");
  EXPECT_EQ(json(post("/detokenize", R"({"tokens": [700]})"), 400).at("error").at("param"),
            "tokens");
  EXPECT_EQ(json(post("/tokenize", "{}"), 400).at("error").at("param"), "content");
  EXPECT_EQ(json(post("/apply-template", R"({"messages": [{"role": "user", "content": "q"}]})"))
                .at("prompt"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST_F(ServiceTest, RefusesWhatTheFormatHasNoFormFor) {
  start({}, "llama3");
  EXPECT_EQ(json(chat(kTools), 400).at("error").at("param"), "tools");
  start({}, "");
  EXPECT_EQ(json(chat(), 400).at("error").at("code"), "no_chat_template");
  EXPECT_EQ(ask(completion(R"("prompt": "the")")).status, 200);
}

TEST_F(ServiceTest, TellsItsMetrics) {
  json(chat());
  const ClientAnswer metrics = ask(get("/metrics"));
  EXPECT_TRUE(
      HttpClient::header(metrics.head, "content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* line :
       {"trireme_requests_running 0\n", "trireme_requests_waiting 0\n",
        "trireme_prompt_tokens_total ", "trireme_generation_tokens_total ",
        "trireme_kv_blocks_used 0\n", "trireme_kv_blocks_total 7\n",
        "trireme_preemptions_total 0\n", "trireme_first_token_seconds_count 1\n",
        "trireme_inter_token_seconds_count 1\n", "trireme_request_seconds_count 1\n",
        "trireme_request_seconds_bucket{le=\"+Inf\"} 1\n",
        "# TYPE trireme_request_seconds histogram\n"})
    EXPECT_NE(metrics.body.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace trireme
