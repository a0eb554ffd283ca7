/// Runs `trireme serve` with a model that the test trains: the server and the engine together.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/files/file.hpp"
#include "support/run_program.hpp"
#include "unit/http/http_client.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::ClientAnswer;
using testing::Exit;
using testing::get;
using testing::HttpClient;
using testing::post;
using testing::Process;

class ServeProgram : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    ASSERT_EQ(pretrain("model", {"--train.steps", "3", "--model.max_seq_len", "1024"}).code, 0);
  }

  /// Starts the server and waits for its URL.
  void serve(const Arguments& more = {}) {
    Arguments words{TRIREME_PROGRAM,   "serve",      "--checkpoint", path("model").string(),
                    "--port",          "0",          "--model-name", "tiny",
                    "--chat-template", "minimind-v3"};
    words.insert(words.end(), more.begin(), more.end());
    std::filesystem::remove(path("serve.out"));  // from the test before
    process_ = std::make_unique<Process>(
        words, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}}, path("serve"));
    const bool ready =
        testing::wait_for([&] { return !url().empty() || !process_->running(); }, kLimit_s);
    ASSERT_TRUE(ready && process_->running()) << read_file(path("serve.err"));
    port_ = static_cast<std::uint16_t>(std::stoi(url().substr(url().rfind(':') + 1)));
  }

  /// Returns the one line on standard output; "" if it is not complete yet.
  static std::string url() {
    if (!std::filesystem::exists(path("serve.out"))) return "";
    const std::string out = read_file(path("serve.out"));
    return out.ends_with('\n') ? out.substr(0, out.size() - 1) : "";
  }

  Json ask(const std::string& bytes, int status = 200) const {
    HttpClient client(port_);
    client.send(bytes);
    const ClientAnswer answer = client.answer(60);
    EXPECT_EQ(answer.status, status) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }

  /// Returns all metrics at one moment.
  [[nodiscard]] std::string scrape() const {
    HttpClient client(port_);
    client.send(get("/metrics"));
    return client.answer().body;
  }

  static double value(const std::string& scraped, const std::string& name) {
    const std::size_t at = scraped.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(scraped.substr(at + name.size() + 2));
  }

  /// Returns all metrics at the next moment without waiting or running requests. The last token of
  /// an answer is sent before its step ends, and a second scrape may show another moment.
  [[nodiscard]] std::string scrape_idle() const {
    std::string scraped;
    EXPECT_TRUE(testing::wait_for(
        [&] {
          scraped = scrape();
          return value(scraped, "trireme_requests_waiting") == 0 &&
                 value(scraped, "trireme_requests_running") == 0;
        },
        30));
    return scraped;
  }

  std::unique_ptr<Process> process_;
  std::uint16_t port_ = 0;
};

TEST_F(ServeProgram, SaysWhatGenerateSays) {
  const Exit direct = trireme({"generate", "--checkpoint", path("model").string(), "--prompt",
                               "the", "--max-tokens", "12", "--temperature", "0", "--json"});
  ASSERT_EQ(direct.code, 0) << direct.err;
  serve();
  EXPECT_TRUE(url().starts_with("http://127.0.0.1:")) << url();

  const std::string fields = R"("max_tokens": 12, "temperature": 0)";
  const Json whole = ask(post("/v1/completions", R"({"prompt": ["the", "the"], )" + fields + "}"));
  const Json expected = Json::parse(direct.out);
  for (const Json& choice : whole.at("choices")) {
    EXPECT_EQ(choice.at("text"), expected.at("text"));
    EXPECT_EQ(choice.at("finish_reason"), expected.at("finish_reason"));
  }

  const Json chat =
      ask(post("/v1/chat/completions",
               R"({"messages": [{"role": "user", "content": "the"}], "n": 2, "seed": 1,
                                 "logprobs": true, "top_logprobs": 2, "max_tokens": 5})"));
  EXPECT_EQ(chat.at("choices").size(), 2U);
  EXPECT_EQ(chat["choices"][0].at("logprobs").at("content")[0].at("top_logprobs").size(), 2U);

  const Json scored = ask(post("/v1/completions", R"({"prompt": "the other", "echo": true,
                                                      "logprobs": 1, "max_tokens": 1})"));
  const Json& logprobs = scored.at("choices")[0].at("logprobs");
  EXPECT_TRUE(logprobs.at("token_logprobs")[0].is_null());
  EXPECT_LT(logprobs.at("token_logprobs")[1].get<double>(), 0);
  const std::string idle = scrape_idle();
  EXPECT_EQ(value(idle, "trireme_kv_blocks_used"), 0);
  EXPECT_GT(value(idle, "trireme_generation_tokens_total"), 20);
  EXPECT_GT(value(idle, "trireme_first_token_seconds_count"), 3);
}

TEST_F(ServeProgram, TakesTheLargestOptionsAndOutlivesTheWorstRequests) {
  serve({"--max-queue", "9223372036854775807", "--request-timeout-s", "31536000", "--drain-s",
         "31536000"});
  const std::string prompt = R"({"prompt": "the", "max_tokens": 2)";
  for (const char* field : {"repetition_penalty", "temperature"}) {
    const std::string fields = formatted(R"(, "{}": 1e-310, "top_p": 0.9)", field);
    EXPECT_EQ(ask(post("/v1/completions", prompt + fields + "}"), 400).at("error").at("param"),
              field);
  }
  EXPECT_EQ(ask(post("/v1/completions", prompt + "}")).at("choices").size(), 1U);
}

TEST_F(ServeProgram, AnswersInTheFormThatIsAskedFor) {
  serve();
  const std::string chat = R"({"messages": [{"role": "user", "content": "the"}], "temperature": 1,
                               "max_tokens": 200, )";
  for (int seed = 0; seed < 4; ++seed) {
    const Json reply = ask(post(
        "/v1/chat/completions",
        chat + formatted(R"("seed": {}, "response_format": {{"type": "json_schema", "json_schema":
            {{"name": "x", "schema": {{"type": "object", "required": ["ok", "kind"], "properties":
            {{"ok": {{"type": "boolean"}}, "kind": {{"enum": ["a", "b"]}}}}}}}}}}}})",
                         seed)));
    const Json value =
        Json::parse(reply.at("choices")[0].at("message").at("content").get<std::string>());
    EXPECT_TRUE(value.at("ok").is_boolean()) << value;
    EXPECT_TRUE(value.at("kind") == "a" || value.at("kind") == "b") << value;
    EXPECT_EQ(reply["choices"][0].at("finish_reason"), "stop");
  }
  const Json reply = ask(post("/v1/chat/completions", chat + R"("tool_choice": "required",
      "parallel_tool_calls": false, "tools": [{"type": "function", "function": {"name": "add",
      "parameters": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1,
      "maximum": 9}}, "required": ["n"]}}}]})"));
  const Json& choice = reply.at("choices")[0];
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const Json call = choice.at("message").at("tool_calls").at(0).at("function");
  EXPECT_EQ(call.at("name"), "add");
  EXPECT_GT(Json::parse(call.at("arguments").get<std::string>()).at("n"), 0);
}

TEST_F(ServeProgram, DropsLostClientsAndEndsOnASignal) {
  serve({"--drain-s", "20", "--max-context", "32"});
  const std::string endless = post("/v1/completions", R"({"prompt": "the", "ignore_eos": true,
                                                          "max_tokens": 1000, "stream": true})");
  {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(std::make_unique<HttpClient>(port_));
      clients.back()->send(endless);
      if (i % 2 == 0) clients.back()->vanish();
    }
    clients.back()->wait_for("data: ");
  }
  EXPECT_EQ(value(scrape_idle(), "trireme_kv_blocks_used"), 0);
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt": ")" + std::string(4000, 'x') + "\"}"), 400)
                .at("error")
                .at("param"),
            "prompt");

  HttpClient last(port_);
  last.send(endless);
  last.wait_for("data: ");
  process_->signal(SIGTERM);
  EXPECT_NE(last.wait_for("[DONE]").find("[DONE]"), std::string_view::npos);
  const Exit exit = process_->wait(kLimit_s);
  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_EQ(exit.out, url() + "\n");
  EXPECT_NE(exit.err.find("SIGTERM: no new requests are accepted"), std::string::npos) << exit.err;
}

TEST_F(ServeProgram, RefusesWhatCannotBe) {
  const auto refused = [](const Arguments& more, int code, const std::vector<std::string>& words) {
    Arguments all{"serve", "--checkpoint", path("model").string(), "--port", "0"};
    all.insert(all.end(), more.begin(), more.end());
    expect_refused(trireme(all), code, words);
  };
  refused({"--host", "0.0.0.0"}, 2, {"--host 0.0.0.0", "--token-file"});
  refused({"--host", "192.0.2.1"}, 2, {"--host", "192.0.2.1"});
  refused({"--token", "a b"}, 2, {"token"});
  refused({"--token", "a", "--token-file", "b"}, 2, {"either --token or --token-file"});
  refused({"--token-file", path("absent").string()}, 3, {"absent"});
  refused({"--port", "70000"}, 2, {"--port 70000"});
  refused({"--max-batch", "0"}, 2, {"--max-batch 0"});
  refused({"--request-timeout-s", "1e10"}, 2, {"--request-timeout-s 1e+10", "31536000"});
  refused({"--drain-s", "1e10"}, 2, {"--drain-s 1e+10"});
  refused({"--chat-template", "x"}, 2, {"x", "minimind-v3"});
}

}  // namespace
}  // namespace trireme
