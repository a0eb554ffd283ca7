/// Runs `trireme generate` and `trireme serve` with one model on two ranks of a real mpirun.

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/files/file.hpp"
#include "support/run_program.hpp"
#include "unit/http/http_client.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::get;
using testing::HttpClient;
using testing::post;
using testing::Process;

class ServeRanks : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    ASSERT_EQ(pretrain("model", {"--train.steps", "3", "--model.max_seq_len", "512",
                                 "--model.num_heads", "4", "--model.num_kv_heads", "2"})
                  .code,
              0);
    std::ofstream(path("prompts.jsonl")) << R"({"prompt": "the other"})"
                                         << "\n"
                                         << R"({"ids": [5, 9, 2]})"
                                         << "\n"
                                         << R"({"messages": [{"role": "user", "content": "a"}]})"
                                         << "\n";
  }

  static Arguments generate(const Arguments& more) {
    Arguments words{TRIREME_PROGRAM, "generate", "--checkpoint", path("model").string(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// Starts the server on this number of ranks and waits for its URL. `axis`: the parallel
  /// dimension of the ranks.
  void serve(int ranks, const std::string& axis = "tp") {
    Arguments words{TRIREME_MPIEXEC,      "--oversubscribe", "--bind-to", "none", "-n",
                    std::to_string(ranks)};
    if (ranks == 1) words.clear();
    for (const std::string& word :
         {std::string(TRIREME_PROGRAM), std::string("serve"), std::string("--checkpoint"),
          path("model").string(), std::string("--port"), std::string("0"),
          std::string("--chat-template"), std::string("minimind-v3"), "--parallel." + axis,
          std::to_string(ranks)})
      words.push_back(word);
    std::filesystem::remove(path("serve.out"));  // from the server before
    process_ = std::make_unique<Process>(
        words,
        std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"},
                                           {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},
        path("serve"));
    const bool ready =
        testing::wait_for([&] { return !url().empty() || !process_->running(); }, kLimit_s);
    ASSERT_TRUE(ready && process_->running()) << read_file(path("serve.err"));
    port_ = static_cast<std::uint16_t>(std::stoi(url().substr(url().rfind(':') + 1)));
  }

  static std::string url() {
    if (!std::filesystem::exists(path("serve.out"))) return "";
    const std::string out = read_file(path("serve.out"));
    return out.ends_with('\n') ? out.substr(0, out.size() - 1) : "";
  }

  Json ask(const std::string& bytes) const {
    HttpClient client(port_);
    client.send(bytes);
    const testing::ClientAnswer answer = client.answer(60);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }

  /// Returns the answers to requests of every form.
  [[nodiscard]] std::vector<Json> answers() const {
    const std::string message = R"("messages": [{"role": "user", "content": "the"}])";
    Json text =
        ask(post("/v1/completions",
                 R"({"prompt": ["the", "the other"], "max_tokens": 12, "temperature": 0})"));
    Json sampled = ask(
        post("/v1/chat/completions", "{" + message + R"(, "n": 2, "seed": 4, "max_tokens": 10})"));
    Json schema =
        ask(post("/v1/chat/completions", "{" + message + R"(, "seed": 1, "max_tokens": 200,
             "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
             {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}}}})"));
    Json response =
        ask(post("/v1/responses", R"({"input": "the", "max_output_tokens": 6, "temperature": 0})"));
    return {text.at("choices"), sampled.at("choices"), schema.at("choices"),
            response.at("output").at(0).at("content")};
  }

  [[nodiscard]] Json embedding() const {
    return ask(post("/v1/embeddings", R"({"input": "the other"})"))
        .at("data")
        .at(0)
        .at("embedding");
  }

  std::unique_ptr<Process> process_;
  std::uint16_t port_ = 0;
};

TEST_F(ServeRanks, GenerateGivesTheTokensOfOneRank) {
  const Arguments prompts{"--prompts",     path("prompts.jsonl").string(),
                          "--max-tokens",  "20",
                          "--temperature", "0",
                          "--batch",       "3"};
  const auto lines = [](const std::string& text) {
    std::vector<std::pair<Json, Json>> all;  // index and ids
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      const Json json = Json::parse(line);
      all.emplace_back(json.at("index"), json.at("ids"));
    }
    return all;
  };
  for (const std::string weights : {"precision", "int8"}) {
    Arguments words = generate(prompts);
    words.insert(words.end(), {"--weights", weights});
    const Exit whole = trireme({words.begin() + 1, words.end()});
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_EQ(lines(whole.out).size(), 3U);
    for (const std::string axis : {"tp", "pp"}) {
      Arguments split = words;
      split.insert(split.end(), {"--parallel." + axis, "2"});
      const Exit shared = mpirun(2, split);
      ASSERT_EQ(shared.code, 0) << shared.err;
      EXPECT_EQ(lines(shared.out), lines(whole.out)) << weights << " " << axis;
    }
  }
}

TEST_F(ServeRanks, RefuseANumberOfRanksThatDoesNotFit) {
  expect_refused(mpirun(2, generate({"--prompt", "a"})), 2, {"--parallel.tp is 1", "ranks is 2"});
  expect_refused(trireme({"generate", "--checkpoint", path("model").string(), "--prompt", "a",
                          "--parallel.tp", "2"}),
                 2, {"--parallel.tp is 2", "mpirun -n 2"});
  expect_refused(mpirun(3, generate({"--prompt", "a", "--parallel.tp", "3"})), 2,
                 {"--parallel.tp 3", "4 attention heads"});
  expect_refused(mpirun(3, generate({"--prompt", "a", "--parallel.pp", "3"})), 2,
                 {"--parallel.pp 3", "2 layers"});
  expect_refused(mpirun(2, generate({"--prompt", "a", "--parallel.tp", "2", "--weights", "int8",
                                     "--precision", "fp64"})),
                 2, {"--weights int8", "--precision fp64"});
  // Only rank 0 reads the prompts.
  const std::string absent = path("absent").string();
  expect_refused(mpirun(2, generate({"--prompts", absent, "--parallel.tp", "2"})), 3, {"absent"});
}

TEST_F(ServeRanks, ServeAnswersLikeOneRankAndEndsOnASignal) {
  serve(1);
  const std::vector<Json> expected = answers();
  const Json expected_vector = embedding();
  process_->signal(SIGTERM);
  ASSERT_EQ(process_->wait(kLimit_s).code, 0);

  serve(2);
  EXPECT_EQ(answers(), expected);
  const Json vector = embedding();
  ASSERT_EQ(vector.size(), expected_vector.size());
  for (std::size_t i = 0; i < vector.size(); ++i)
    EXPECT_NEAR(vector[i].get<double>(), expected_vector[i].get<double>(), 1e-5);
  // Rank 1 gets the signal first, as under srun, and must not end before the answers have ended.
  testing::signal_process(testing::rank_pid(process_->pid(), 1), SIGTERM);
  EXPECT_EQ(
      ask(post("/v1/completions", R"({"prompt": "the", "max_tokens": 3})")).at("choices").size(),
      1U);
  HttpClient last(port_);
  last.send(post("/v1/completions",
                 R"({"prompt": "the", "ignore_eos": true, "max_tokens": 200, "stream": true})"));
  last.wait_for("data: ");
  testing::signal_process(testing::rank_pid(process_->pid(), 0), SIGTERM);
  EXPECT_NE(last.wait_for("[DONE]").find("[DONE]"), std::string_view::npos);
  const Exit exit = process_->wait(kLimit_s);
  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_FALSE(exit.timed_out);
}

TEST_F(ServeRanks, ServeAnswersWithLayersOnTwoRanks) {
  serve(2, "pp");
  const std::vector<Json> split = answers();
  process_->signal(SIGTERM);
  process_->wait(kLimit_s);
  serve(1);
  EXPECT_EQ(split, answers());
}

TEST_F(ServeRanks, ADeadRankEndsTheServer) {
  serve(2, "pp");
  testing::signal_process(testing::rank_pid(process_->pid(), 1), SIGKILL);
  const Exit exit = process_->wait(30);
  EXPECT_FALSE(exit.timed_out);
  EXPECT_NE(exit.code, 0);
  EXPECT_NE(exit.err.find("rank 1 "), std::string::npos) << exit.err;
  EXPECT_NE(exit.err.find("is gone"), std::string::npos) << exit.err;
}

TEST_F(ServeRanks, ARankThatFailsInAStepEndsGenerate) {
  const auto fail_with = [](const std::string& action, const std::string& axis) {
    return mpirun(
        2, generate({"--prompt", "the", "--parallel." + axis, "2", "--max-tokens", "50"}),
        {{"TRIREME_FAULT", "generate.follow:1:4:" + action}, {"TRIREME_ALLOW_FAULTS", "1"}});
  };
  for (const std::string axis : {"tp", "pp"}) {
    const Exit killed = fail_with("kill9", axis);
    EXPECT_NE(killed.code, 0);
    EXPECT_NE(killed.err.find("is gone"), std::string::npos) << killed.err;
  }
  const Exit failed = fail_with("throw", "pp");
  EXPECT_EQ(failed.code, 4) << failed.err;
  EXPECT_EQ(count(failed.err, "trireme: error"), 1U) << failed.err;
}

}  // namespace
}  // namespace trireme
