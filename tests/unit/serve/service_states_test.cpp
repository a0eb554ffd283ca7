#include "unit/serve/service_server.hpp"

namespace trireme::serve {
namespace {

using testing::ClientAnswer;
using testing::get;
using testing::HttpClient;
using testing::kTools;
using testing::post;
using testing::said;

class ServiceStates : public testing::ServiceServer {};

TEST_F(ServiceStates, ErrorsNameTheProblem) {
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

TEST_F(ServiceStates, FailsWithTheStatusOfWhatWentWrong) {
  script = [](const generate::Request&) {
    std::vector<generate::Delta> deltas(1);
    deltas[0].finish = generate::FinishReason::error;
    deltas[0].error = Error(ErrorKind::numeric, "the logits are not finite");
    return deltas;
  };
  for (const char* fields : {"", R"("stream": true)"}) {  // nothing of the stream was sent yet
    const Json error = json(chat(fields), 500).at("error");
    EXPECT_EQ(error.at("type"), "server_error");
    EXPECT_EQ(error.at("message"), "the logits are not finite");
  }
  script = [](const generate::Request&) {
    std::vector<generate::Delta> deltas = said({"He"});
    deltas[1].finish = generate::FinishReason::error;
    deltas[1].error = Error(ErrorKind::numeric, "not finite");
    return deltas;
  };
  const std::vector<Json> streamed = events(chat(R"("stream": true)"));
  EXPECT_EQ(streamed.back().at("error").at("message"), "not finite");
}

TEST_F(ServiceStates, PagesOfOtherOriginsNeedTheOption) {
  const std::string origin = "Origin: https://a.example\r\nSec-Fetch-Site: cross-site\r\n";
  const std::string asks = origin +
                           "Access-Control-Request-Method: POST\r\n"
                           "Access-Control-Request-Headers: authorization, x-stainless-os\r\n";
  const std::string preflight = get("/v1/chat/completions", asks, "OPTIONS");
  const auto allowed = [](const ClientAnswer& answer) {
    return HttpClient::header(answer.head, "access-control-allow-origin");
  };
  EXPECT_EQ(ask(preflight).status, 403);
  EXPECT_EQ(allowed(ask(get("/v1/models", origin))), "");

  start({.access = {.token = "t", .cors_origins = {"https://a.example"}}}, "minimind-v3");
  const ClientAnswer answer = ask(preflight);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "");
  EXPECT_EQ(allowed(answer), "https://a.example");
  EXPECT_EQ(HttpClient::header(answer.head, "access-control-allow-headers"),
            "authorization, x-stainless-os");
  EXPECT_EQ(HttpClient::header(answer.head, "access-control-allow-methods"), "GET, POST");
  EXPECT_EQ(ask(get("/v1/models", asks, "OPTIONS")).status, 200);
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer t\r\n", "OPTIONS")).status, 405);

  // Errors have the header, too: otherwise the page could not read them.
  const ClientAnswer refused = ask(get("/v1/models", origin));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(allowed(refused), "https://a.example");
  const std::string body = R"({"prompt": "a", "stream": true})";
  const ClientAnswer stream =
      ask(post("/v1/completions", body, origin + "Authorization: Bearer t\r\n"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(allowed(stream), "https://a.example");
  const ClientAnswer other = ask(get("/v1/models", "Origin: https://b.example\r\n"));
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(allowed(other), "");
}

TEST_F(ServiceStates, TheQueueHasAnEnd) {
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
  // If there are more answers than the queue can take, they are made one after another.
  source_->is_endless = false;
  first.wait_for("[DONE]");
  second.wait_for("[DONE]");
  EXPECT_EQ(json(chat(R"("n": 7)")).at("choices").size(), 7U);
}

TEST_F(ServiceStates, AnswersThatHaveBegunKeepTheirPlaceInTheQueue) {
  source_->max_queue = 1;
  script = [&](const generate::Request&) {
    source_->max_queue = 0;  // from the first answer on, the queue accepts no other request
    return said({"Hel", "lo"});
  };
  EXPECT_EQ(json(chat(R"("n": 3)")).at("choices").size(), 3U);
  EXPECT_EQ(json(chat(), 429).at("error").at("code"), "queue_full");
}

TEST_F(ServiceStates, AnEngineThatEndsFailsTheAnswersThatHaveNotBegun) {
  source_->max_queue = 1;
  script = [&](const generate::Request&) {
    source_->ended = true;
    return said({"Hel", "lo"});
  };
  EXPECT_EQ(json(chat(R"("n": 3)"), 503).at("error").at("code"), "draining");
  EXPECT_EQ(json(chat(), 503).at("error").at("code"), "draining");
}

TEST_F(ServiceStates, ARequestOfALostClientIsCancelled) {
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

TEST_F(ServiceStates, ARequestThatTakesTooLongEnds) {
  start({.request_timeout_s = 0.1}, "minimind-v3");
  source_->is_endless = true;
  source_->pause_ms = 1;
  EXPECT_EQ(json(chat(), 408).at("error").at("type"), "timeout_error");
  EXPECT_EQ(events(chat(R"("stream": true)")).back().at("error").at("type"), "timeout_error");
  for (int i = 0; i < 1000 && source_->counters().running > 0; ++i) ::usleep(2000);
  EXPECT_EQ(source_->counters().running, 0);
}

TEST_F(ServiceStates, OpensAndDrains) {
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

TEST_F(ServiceStates, WantsTheTokenForAllButThePage) {
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

TEST_F(ServiceStates, ThePageLoadsNothingButItself) {
  const ClientAnswer page = ask(get("/"));
  EXPECT_EQ(HttpClient::header(page.head, "content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(
      HttpClient::header(page.head, "content-security-policy").starts_with("default-src 'none'"));
  EXPECT_EQ(HttpClient::header(page.head, "x-content-type-options"), "nosniff");
  EXPECT_NE(page.body.find("<html"), std::string::npos);
}

TEST_F(ServiceStates, TellsItsModelTokensAndTemplate) {
  EXPECT_EQ(json(get("/v1/models")).at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(json(get("/v1/models/tiny")).at("meta").at("n_ctx"), 1000);
  EXPECT_EQ(json(get("/v1/models/t%69n%79")).at("id"), "tiny");
  for (const char* other : {"tin%", "tin%7", "tin%7g", "tin%2579"})
    EXPECT_EQ(json(get(cat("/v1/models/", other)), 404).at("error").at("code"), "model_not_found");

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

TEST_F(ServiceStates, APromptMayEndWithoutTheHeaderOfAnAnswer) {
  // With each later message, the template changes the text before it.
  chat_ = text::jinja_chat_template(
      "{{ messages | length }}{% for m in messages %}|{{ m.content }}{% endfor %}", "T");
  start({}, "");
  EXPECT_EQ(json(post("/apply-template",
                      R"({"add_generation_prompt": false, "messages": [
                          {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
                          {"role": "user", "content": "r"}]})"))
                .at("prompt"),
            "3|q|a|r");
}

TEST_F(ServiceStates, DecodesIdsThatNoTokenHasToNothing) {
  vocab_size_ = 704;
  start({}, "minimind-v3");
  const Json tokens = Json::array({700, tokenizer().encode("the").at(0), 703});
  EXPECT_EQ(json(post("/detokenize", Json({{"tokens", tokens}}).dump())).at("content"), "the");
  EXPECT_EQ(json(post("/detokenize", R"({"tokens": [704]})"), 400).at("error").at("param"),
            "tokens");
}

TEST_F(ServiceStates, NamesTheFieldThatNeedsATokenizerWhichTheModelLacks) {
  model_tokenizer_ = text::Tokenizer::ids_only({}, 700, "Unigram");
  const auto refused = [&](const std::string& request) {
    const Json error = json(request, 400).at("error");
    EXPECT_EQ(error.at("code"), "no_tokenizer") << error;
    return error.at("param").get<std::string>();
  };
  for (const char* format : {"", "minimind-v3"}) {
    start({}, format);
    EXPECT_EQ(refused(chat()), "messages");
    EXPECT_EQ(refused(completion(R"("prompt": "a")")), "prompt");
    EXPECT_EQ(refused(completion(R"("prompt": [3], "stop": "a")")), "stop");
    EXPECT_EQ(refused(completion(R"("prompt": [3], "response_format": {"type": "json_object"})")),
              "response_format");
    EXPECT_EQ(refused(post("/tokenize", R"({"content": "a"})")), "content");
    (void)json(completion(R"("prompt": [3], "max_tokens": 2)"));
  }
}

TEST_F(ServiceStates, NamesUnknownFields) {
  const auto refused = [&](const char* path, const char* body) {
    return json(post(path, body), 400).at("error").at("param");
  };
  EXPECT_EQ(refused("/tokenize", R"({"content": "a", "parse_specials": false})"), "parse_specials");
  EXPECT_EQ(refused("/detokenize", R"({"tokens": [], "skip": true})"), "skip");
  EXPECT_EQ(refused("/apply-template",
                    R"({"messages": [{"role": "user", "content": "q"}], "top_kk": 1})"),
            "top_kk");
  EXPECT_EQ(json(post("/tokenize", R"({"content": "a", "model": "tiny"})")).at("tokens").size(),
            1U);
}

TEST_F(ServiceStates, RefusesWhatTheFormatHasNoFormFor) {
  start({}, "llama3");
  EXPECT_EQ(json(chat(kTools), 400).at("error").at("param"), "tools");
  start({}, "");
  EXPECT_EQ(json(chat(), 400).at("error").at("code"), "no_chat_template");
  EXPECT_EQ(ask(completion(R"("prompt": "the")")).status, 200);
}

TEST_F(ServiceStates, TellsItsMetrics) {
  json(chat());
  const ClientAnswer metrics = ask(get("/metrics"));
  EXPECT_TRUE(
      HttpClient::header(metrics.head, "content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* line :
       {"trireme_requests_running 0\n", "trireme_requests_waiting 0\n",
        "trireme_prompt_tokens_total ", "trireme_generation_tokens_total ",
        "trireme_kv_blocks_used 0\n", "trireme_kv_blocks_total 7\n",
        "trireme_preemptions_total 0\n", "trireme_graph_launches_total 0\n",
        "trireme_first_token_seconds_count 1\n", "trireme_inter_token_seconds_count 1\n",
        "trireme_request_seconds_count 1\n", "trireme_request_seconds_bucket{le=\"+Inf\"} 1\n",
        "# TYPE trireme_request_seconds histogram\n"})
    EXPECT_NE(metrics.body.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace trireme::serve
