/// Tests every command with `--json` (found in the program's own list of options): it prints one
/// JSON document on one line, or one document per line for a stream (JSON Lines).

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/files/json_lines.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

struct JsonCase {
  Arguments arguments;
  std::size_t lines = 1;  // each has a JSON document
  int ranks = 1;
};

class JsonOutput : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    ASSERT_EQ(pretrain("model", {"--train.steps", "1"}).code, 0);
    std::ofstream(path("prompts.jsonl")) << "{\"prompt\": \"the\"}\n{\"prompt\": \"a\"}\n";
  }

  static Exit run(int ranks, const char* program, const Arguments& arguments) {
    Arguments words{program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (ranks > 1) return mpirun(ranks, words);
    if (words[0] == TRIREME_PROGRAM) return trireme(arguments);
    return testing::Process(words, {{"OMP_NUM_THREADS", "1"}}, path("json.log")).wait(kLimit_s);
  }

  /// Returns the commands that have the option, from the completion script for bash.
  static std::set<std::string> commands_with_json(const char* program) {
    std::istringstream script(run(1, program, {"completion", "bash"}).out);
    std::set<std::string> commands;
    std::string command;
    for (std::string line; std::getline(script, line);) {
      if (line.starts_with("    '") && line.ends_with("')"))
        command = line.substr(5, line.size() - 7);
      const bool has_json =
          line.starts_with("      options='") && (line.find(" --json ") != std::string::npos ||
                                                  line.find("'--json ") != std::string::npos);
      if (has_json) commands.insert(command);
    }
    return commands;
  }

  static void expect_json(const char* program, const std::map<std::string, JsonCase>& cases) {
    std::set<std::string> known;
    for (const auto& [command, one] : cases) known.insert(command);
    EXPECT_EQ(commands_with_json(program), known);
    for (const auto& [command, one] : cases) {
      SCOPED_TRACE(command);
      std::istringstream words(command);
      Arguments all{std::istream_iterator<std::string>(words), {}};
      all.emplace_back("--json");
      all.insert(all.end(), one.arguments.begin(), one.arguments.end());
      const Exit exit = run(one.ranks, program, all);
      std::size_t documents = 0;
      for_each_json_line(exit.out, command, [&](const Json& document, const auto&) {
        EXPECT_TRUE(document.is_object());
        ++documents;
      });
      EXPECT_TRUE(exit.out.ends_with('\n')) << exit.err;
      EXPECT_EQ(documents, one.lines) << exit.out << exit.err;
    }
  }
};

TEST_F(JsonOutput, TriremePrintsOneDocumentOrJsonLines) {
  const std::string model = path("model").string();
  const Arguments shape{"--model.preset",  "tiny", "--model.hidden_size", "32",
                        "--train.seq_len", "16"};
  const auto with_shape = [&](Arguments more) {
    more.insert(more.end(), shape.begin(), shape.end());
    return more;
  };
  expect_json(
      TRIREME_PROGRAM,
      {{"bench checkpoint",
        {.arguments = {"--bytes", "65536", "--repeats", "1", "--folder", path("bench").string()}}},
       {"bench generate",
        {.arguments = {"--checkpoint", model, "--batch", "1", "--prompt-tokens", "4",
                       "--new-tokens", "2", "--repeats", "1", "--device", "cpu"}}},
       {"bench step",
        {.arguments = with_shape({"--steps", "1", "--ops", "--train.device", "cpu"})}},
       {"bench matmul",
        {.arguments = {"--m", "32", "--n", "48", "--k", "16", "--seconds", "0.001"}}},
       {"bench collectives",
        {.arguments = {"--op", "all_reduce", "--min-bytes", "1024", "--max-bytes", "2048",
                       "--seconds", "0.001", "--device", "cpu"},
         .lines = 6,  // two sizes and three backends
         .ranks = 2}},
       {"bench scaling",
        {.arguments = with_shape({"--weak", "--ranks", "1,2", "--predict", "8,4096", "--steps", "1",
                                  "--train.device", "cpu"}),
         .ranks = 2}},
       {"bench ladder", {.arguments = with_shape({"--steps", "1", "--train.device", "cpu"})}},
       {"checkpoint list", {.arguments = {model}}},
       {"doctor", {.arguments = {}, .ranks = 2}},
       {"eval",
        {.arguments = {"--checkpoint", model, "--data", set().string(), "--device", "cpu"},
         .ranks = 2}},
       {"generate",
        {.arguments = {"--checkpoint", model, "--prompts", path("prompts.jsonl").string(),
                       "--max-tokens", "2", "--device", "cpu"},
         .lines = 2}},
       {"job list", {.arguments = {model}}},
       {"job watch", {.arguments = {model, "--once"}}},
       {"kernels", {.arguments = {"--arch", "sm_80"}}},
       {"plan", {.arguments = with_shape({"--gpu", "cpu", "--top", "2"})}},
       {"plan schedule", {.arguments = {"--stages", "2", "--micro-batches", "2"}}},
       {"report", {.arguments = {model}}},
       {"submit",
        {.arguments = {"--dry-run", "--", "pretrain", "--data", set().string(), "--run",
                       path("none").string(), "--model.preset", "tiny"}}},
       {"verify-layout", {.arguments = {"--steps", "1"}}}});
}

TEST_F(JsonOutput, TriremeDataPrintsOneDocument) {
  expect_json(TRIREME_DATA_PROGRAM,
              {{"inspect", {.arguments = {set().string()}}},
               {"bench",
                {.arguments = {"--tokenizer", (set() / "tokenizer").string(), "--input",
                               path("corpus.jsonl").string(), "--threads", "1", "--seconds", "0",
                               "--seq-len", "32"}}}});
}

}  // namespace
}  // namespace trireme
