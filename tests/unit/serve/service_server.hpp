#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "http/http_server.hpp"
#include "serve/service.hpp"
#include "text/chat/jinja_chat.hpp"
#include "unit/http/http_client.hpp"
#include "unit/serve/scripted_source.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::testing {

/// The whole server except for the engine, with real connections.
class ServiceServer : public ::testing::Test {
 protected:
  void SetUp() override { start({}, "minimind-v3"); }

  void start(serve::ServiceConfig config, const char* chat_format) {
    server_.reset();
    source_ = std::make_unique<ScriptedSource>(
        [this](const generate::Request& request) { return script(request); });
    serve::ModelProperties facts{
        .name = "tiny",
        .fingerprint = "fp_1",
        .created = 5,
        .max_context = 1000,
        .vocab_size = vocab_size_,
        .end_tokens = {*tokenizer().eos_id()},
        .chat = *chat_format == '\0' ? chat_ : text::shared_chat_template(chat_format)};
    model_ = std::make_unique<serve::ServedModel>(facts, model_tokenizer_.value_or(tokenizer()),
                                                  *source_);
    service_ = std::make_unique<serve::Service>(config);
    server_ = std::make_unique<http::HttpServer>(
        http::HttpConfig{},
        http::HttpHandlers{
            .refuse = [this](const http::HttpHead& head) { return service_->refuse(head); },
            .handle =
                [this](http::HttpRequest request, const std::shared_ptr<http::HttpReply>& reply) {
                  service_->handle(std::move(request), reply);
                },
            .error_body =
                [](int status, std::string_view message) {
                  return serve::ApiError(status, std::string(message)).body();
                },
            .common_headers =
                [this](const http::HttpHead& head) { return service_->common_headers(head); }});
    server_->start();
    if (opens_) service_->open(*model_);
  }

  void TearDown() override {
    source_.reset();  // the engine ends before the connections
    server_.reset();
  }

  static const text::Tokenizer& tokenizer() {
    static const text::Tokenizer value = text::samples::small_tokenizer();
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

  /// Returns the events of a stream, which must end correctly.
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
  std::int64_t vocab_size_ = 700;                   // rows of the model; the tokenizer has 700
  std::optional<text::Tokenizer> model_tokenizer_;  // for the next start(), instead of tokenizer()
  text::ChatTemplatePtr chat_;  // for the next start() without the name of a format
  std::function<std::vector<generate::Delta>(const generate::Request&)> script =
      [](const generate::Request&) {
        return said({"Hel", "lo"});
      };
  std::unique_ptr<ScriptedSource> source_;
  std::unique_ptr<serve::ServedModel> model_;
  std::unique_ptr<serve::Service> service_;
  std::unique_ptr<http::HttpServer> server_;
};

/// Fields of a request with one tool.
inline const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
       "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])";

}  // namespace trireme::testing
