/// Checks every command of both programs against one table: the meaning of an exit code does not
/// depend on the command. The words are those of src/core/files/refusal.hpp and of the README.

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;
using testing::Process;

/// A command with arguments that work. `<x` stands for a path that the command reads and `>x` for a
/// path that it makes. Both lie in the directory of the test.
struct Row {
  const char* program;
  Arguments command;
  Arguments arguments;
  bool replaces_files = false;    // the output may exist: the command replaces this file
  bool reports_problems = false;  // the command checks a later one, and exits with 2
  const char* input = nullptr;    // one line for standard input
};

const std::vector<Row>& rows() {
  const auto on = [](const char* set, const Arguments& more = {}) {
    Arguments all{"--init", "<run", "--data", set, "--run", ">run", "--train.steps", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  static const std::vector<Row> table{
      {"trireme",
       {"pretrain"},
       {"--data", "<set", "--run", ">run", "--model.preset", "tiny", "--train.steps", "1"}},
      {"trireme", {"sft"}, on("<chats")},
      {"trireme", {"dpo"}, on("<pairs")},
      {"trireme", {"kto"}, on("<answers")},
      {"trireme", {"reward"}, on("<pairs")},
      {"trireme", {"distill"}, on("<chats", {"--distill.teacher", "<run"})},
      {"trireme", {"rl"}, on("<prompts", {"--rl.max_new_tokens", "4"})},
      {"trireme",
       {"dpo-reference"},
       {"--init", "<run", "--data", "<pairs", "--output", ">reference"}},
      {"trireme", {"eval"}, {"--checkpoint", "<run", "--data", "<set"}},
      {"trireme", {"generate"}, {"--checkpoint", "<run", "--prompt", "x", "--max-tokens", "1"}},
      {"trireme",
       {"chat"},
       {"--checkpoint", "<run", "--chat-template", "plain", "--max-tokens", "1"},
       false,
       false,
       "hi"},
      {"trireme", {"serve"}, {"--checkpoint", "<run", "--port", "0"}},
      {"trireme", {"checkpoint", "list"}, {"<run"}},
      {"trireme", {"checkpoint", "verify"}, {"<run"}},
      {"trireme", {"checkpoint", "hash"}, {"<run"}},
      {"trireme", {"checkpoint", "inspect"}, {"<run"}},
      {"trireme", {"checkpoint", "diff"}, {"<run", "<run"}},
      {"trireme", {"checkpoint", "reshard"}, {"<run", "--ranks", "2", "--output", ">steps"}},
      {"trireme", {"checkpoint", "average"}, {"<run", "<run", "--output", ">run"}},
      {"trireme", {"checkpoint", "prune"}, {"<run", "--dry-run"}},
      {"trireme",
       {"bench", "checkpoint"},
       {"--bytes", "1000", "--repeats", "1", "--folder", ">bench"}},
      {"trireme",
       {"bench", "generate"},
       {"--checkpoint", "<run", "--prompt-tokens", "4", "--new-tokens", "2", "--repeats", "1"}},
      {"trireme", {"bench", "collectives"}, {"--max-bytes", "64", "--seconds", "0.001"}},
      {"trireme", {"bench", "scaling"}, {"--weak", "--steps", "1", "--train.seq_len", "32"}},
      {"trireme", {"bench", "matmul"}, {"--m", "2", "--n", "4", "--k", "4", "--seconds", "0.1"}},
      {"trireme", {"bench", "ladder"}, {"--steps", "1", "--train.seq_len", "32"}},
      {"trireme", {"bench", "step"}, {"--steps", "1", "--train.seq_len", "32"}},
      {"trireme", {"plan"}, {"--gpu", "h100", "--nodes", "1", "--model.preset", "tiny"}},
      {"trireme", {"plan", "schedule"}, {"--schedule", "zb-v"}},
      {"trireme", {"plan-interval"}, {"--stall-s", "1", "--mtbf-h", "5"}},
      {"trireme", {"report"}, {"<run", "--output", ">report.html"}, true},
      {"trireme", {"kernels"}, {"--arch", "sm_80"}},
      {"trireme", {"export"}, {"--checkpoint", "<run", "--output", ">hf"}},
      {"trireme", {"import"}, {"--hf", "<hf", "--output", ">run"}},
      {"trireme",
       {"import"},
       {"--minimind", "<hf/model.safetensors", "--model.preset", "tiny", "--model.hidden_size",
        "32", "--model.num_layers", "2", "--model.num_heads", "2", "--model.num_kv_heads", "1",
        "--model.intermediate_size", "64", "--output", ">run"}},
      {"trireme", {"config", "show"}, {}},
      {"trireme", {"doctor"}, {}},
      {"trireme", {"job", "list"}, {"."}},
      {"trireme", {"job", "watch"}, {"<run", "--once"}},
      {"trireme", {"job", "stacks"}, {"<run"}},
      {"trireme", {"job", "attach"}, {"<run", "--rank", "0", "--dry-run"}},
      {"trireme", {"job", "finish"}, {"--run", "<run", "--srun-code", "0", "--dry-run"}},
      {"trireme",
       {"submit"},
       {"--dry-run", "--", "pretrain", "--data", "<set", "--run", ">run", "--model.preset", "tiny"},
       false,
       true},
      {"trireme", {"verify-layout"}, {"--ranks", "2", "--steps", "1", "--parallel.zero", "1"}},
      {"trireme", {"completion"}, {"bash"}},
      {"trireme-data", {"completion"}, {"bash"}},
      {"trireme", {"man"}, {"pretrain"}},
      {"trireme-data", {"man"}, {"pack"}},
      {"trireme-data",
       {"tokenizer", "train"},
       {"--input", "<corpus.jsonl", "--vocab-size", "300", "--output", ">tokenizer"}},
      {"trireme-data",
       {"tokenizer", "encode"},
       {"--tokenizer", "<tokenizer", "--input", "<corpus.jsonl", "--output", ">ids.jsonl"},
       true},
      {"trireme-data",
       {"tokenizer", "decode"},
       {"--tokenizer", "<tokenizer", "--input", "<ids.jsonl", "--output", ">text.jsonl"},
       true},
      {"trireme-data",
       {"pack"},
       {"--tokenizer", "<tokenizer", "--input", "<corpus.jsonl", "--seq-len", "32", "--output",
        ">set"}},
      {"trireme-data",
       {"import"},
       {"--format", "llm.c", "--input", "<tokens.bin", "--vocab-size", "50257", "--output",
        ">set"}},
      {"trireme-data", {"inspect"}, {"<set"}},
      {"trireme-data", {"verify"}, {"<set"}},
      {"trireme-data", {"synth"}, {"--output", ">corpus.jsonl", "--documents", "100"}},
      {"trireme-data",
       {"bench"},
       {"--tokenizer", "<tokenizer", "--input", "<corpus.jsonl", "--seconds", "0", "--no-pack"}}};
  return table;
}

bool is_trainer(const Row& row) {
  static const std::set<std::string> trainers{"pretrain", "sft",     "dpo", "kto",
                                              "reward",   "distill", "rl"};
  return trainers.contains(row.command.front());
}

class ExitCodes : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    make_refusing_directories();  // before the first command: its process keeps its mounts
    make_inputs();
  }

  static void TearDownTestSuite() {
    // A mounted directory cannot be deleted.
    for (const fs::path& mounted : {path("read-only"), path("full")})
      (void)::umount(mounted.c_str());
    RunProgram::TearDownTestSuite();
  }

  static std::string line(const Arguments& words) {
    std::string text;
    for (const std::string& word : words) text += word + ' ';
    return text;
  }

  /// Runs the command under `limits` (`ulimit ...; `) with standard output to `out`.
  static Exit run(const Row& row, Arguments arguments, const std::string& limits = "",
                  const std::string& out = "") {
    const bool is_trireme = std::string(row.program) == "trireme";
    const bool is_server = row.command.front() == "serve";  // a server runs until a signal
    const std::string programs = (path("in/cluster") / ":").string() + std::getenv("PATH");
    Arguments words = row.command;
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (is_trainer(row)) words.insert(words.end(), {"--train.device", "cpu"});
    if (is_trireme && !is_server && row.input == nullptr && limits.empty() && out.empty())
      return trireme(words, {.environment = {{"PATH", programs}}});
    const std::string input = row.input == nullptr ? "" : formatted("echo {} | ", row.input);
    const std::string command = limits + input + "exec \"$@\"" + (out.empty() ? "" : " >" + out);
    Arguments shell{"/bin/sh", "-c", command, "sh"};
    if (is_server)
      shell.insert(shell.end(), {"timeout", "--preserve-status", "--signal=TERM", "10"});
    shell.emplace_back(is_trireme ? TRIREME_PROGRAM : TRIREME_DATA_PROGRAM);
    shell.insert(shell.end(), words.begin(), words.end());
    return Process(shell, {{"OMP_NUM_THREADS", "1"}, {"PATH", programs}}, path("command.log"))
        .wait(kLimit_s);
  }

  /// Returns the arguments with real paths: existing inputs and new outputs. If `instead` is given,
  /// it replaces word `at`.
  static Arguments with_real_paths(const Row& row, std::size_t at = SIZE_MAX,
                                   const fs::path& instead = {}) {
    static int count = 0;
    const fs::path fresh = path("out") / std::to_string(++count);
    fs::create_directories(fresh);
    Arguments words;
    for (std::size_t i = 0; i < row.arguments.size(); ++i) {
      const std::string& word = row.arguments[i];
      if (i == at) {
        words.push_back(instead.string());
      } else if (word[0] == '<') {
        words.push_back((path("in") / word.substr(1)).string());
      } else if (word[0] == '>') {
        words.push_back((fresh / word.substr(1)).string());
      } else {
        words.push_back(word);
      }
    }
    return words;
  }

  static void expect(const Row& row, const Arguments& arguments, int code, const char* why) {
    const Exit exit = run(row, arguments);
    EXPECT_EQ(exit.code, code) << row.program << ' ' << line(row.command) << line(arguments) << "("
                               << why << ")\n"
                               << exit.err;
    const bool one_message =
        exit.err.find(formatted("{}: error: ", row.program)) != std::string::npos;
    EXPECT_TRUE(code == 0 || one_message) << line(row.command) << exit.err;
  }

  static inline fs::path read_only_;
  static inline fs::path full_;  // a disk with one page; empty if this process may not mount a disk

 private:
  /// Makes the inputs of the rows. A row before or the program itself makes each of them.
  static void make_inputs() {
    fs::create_directory(path("in"));
    fs::create_directory_symlink(set(), path("in/set"));
    fs::create_directory_symlink(set() / "tokenizer", path("in/tokenizer"));
    fs::copy_file(path("corpus.jsonl"), path("in/corpus.jsonl"));
    ASSERT_EQ(pretrain("in/run", {"--train.steps", "1"}).code, 0);
    const auto make = [](const std::string& command, const Arguments& arguments) {
      for (const Row& row : rows()) {
        if (line(row.command) != command) continue;
        const Exit exit = run(row, arguments);
        ASSERT_EQ(exit.code, 0) << exit.err;
      }
    };
    const auto in = [](const char* name) { return (path("in") / name).string(); };
    make("export ", {"--checkpoint", in("run"), "--output", in("hf")});
    make("tokenizer encode ", {"--tokenizer", in("tokenizer"), "--input", in("corpus.jsonl"),
                               "--output", in("ids.jsonl")});
    const auto make_set = [&](const char* kind, const char* name, const char* record) {
      std::ofstream(in(name) + ".jsonl") << record << "\n";
      make("pack ", {"--kind", kind, "--tokenizer", in("tokenizer"), "--input", in(name) + ".jsonl",
                     "--seq-len", "32", "--output", in(name), "--template", "plain"});
    };
    make_set(
        "sft", "chats",
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]})");
    make_set("dpo", "pairs", R"({"prompt": "a", "chosen": "b c", "rejected": "d"})");
    make_set("kto", "answers", R"({"prompt": "a", "completion": "b c", "label": true})");
    make_set("rl", "prompts", R"({"messages": [{"role": "user", "content": "a"}], "gt": ["b"]})");
    // The output of sinfo for a cluster with one node, for submit.
    fs::create_directory(path("in/cluster"));
    std::ofstream(in("cluster/sinfo"))
        << "#!/bin/sh\necho 'all|all*|2|4000|(null)|infinite|idle'\n";
    fs::permissions(in("cluster/sinfo"), fs::perms::owner_all);
    // The format of llm.c: 256 numbers of 32 bits, then ids of 16 bits.
    std::string tokens(1024 + 200, '\0');
    const std::int32_t head[] = {20240520, 1, 100};
    std::memcpy(tokens.data(), head, sizeof head);
    for (std::size_t i = 0; i < 100; ++i) tokens[1024 + 2 * i] = static_cast<char>(i % 7 + 1);
    std::ofstream(in("tokens.bin"), std::ios::binary) << tokens;
  }

  /// Makes a read-only disk for root, who may write into any directory, or a directory without
  /// write permission for other users.
  static void make_refusing_directories() {
    read_only_ = path("read-only");
    fs::create_directory(read_only_);
    std::ofstream(path("file")) << "not it\n";
    if (::geteuid() != 0) {
      ASSERT_EQ(::chmod(read_only_.c_str(), 0555), 0);
      return;
    }
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("tmpfs", read_only_.c_str(), "tmpfs", MS_RDONLY, "size=4k") == 0;
    if (!mounted) {
      read_only_ = "/sys";  // root without the right to mount cannot create files in this directory
      return;
    }
    full_ = path("full");
    fs::create_directory(full_);
    ASSERT_EQ(::mount("tmpfs", full_.c_str(), "tmpfs", 0, "size=4k"), 0);
  }
};

/// Returns the commands that `--help` lists.
std::set<std::string> commands_of_help(const std::string& help) {
  std::set<std::string> commands;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string text; std::getline(lines, text);) {
    if (text == "commands:") inside = true;
    if (!inside || text.size() < 3 || text.compare(0, 2, "  ") != 0 || text[2] == ' ') continue;
    commands.insert(text.substr(2, text.find("  ", 2) - 2));
  }
  return commands;
}

TEST_F(ExitCodes, TheTableHasEveryCommand) {
  for (const char* program : {"trireme", "trireme-data"}) {
    std::set<std::string> known;
    for (const Row& row : rows()) {
      const std::string words = line(row.command);
      if (row.program == std::string(program)) known.insert(words.substr(0, words.size() - 1));
    }
    const Exit help = run({program, {"--help"}, {}}, {});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(commands_of_help(help.out), known) << "a new command needs a row in this test";
  }
}

TEST_F(ExitCodes, EachWorks) {
  for (const Row& row : rows()) expect(row, with_real_paths(row), 0, "as it should be");
}

/// Replaces each input by an absent file, another kind of file and one of the unusual paths.
TEST_F(ExitCodes, InputsThatAreAbsentOrDamagedAre3) {
  fs::create_directory(path("empty"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0644), 0);
  const std::vector<fs::path> strange{path("absent-*.jsonl"), path("file") / "below", path("empty"),
                                      path("pipe"), path(std::string(300, 'x'))};
  std::size_t turn = 0;
  for (const Row& row : rows()) {
    for (std::size_t i = 0; i < row.arguments.size(); ++i) {
      const std::string& word = row.arguments[i];
      if (word[0] != '<') continue;
      const int code = row.reports_problems ? 2 : 3;
      expect(row, with_real_paths(row, i, path("absent")), code, "absent");
      expect(row, with_real_paths(row, i, strange[turn++ % strange.size()]), code, "to be read");
      const bool takes_plan = is_trainer(row) || row.command == Arguments{"dpo-reference"};
      const bool is_plan = takes_plan && i > 0 && row.arguments[i - 1] == "--data";
      const bool any_text_will_do = word == "<corpus.jsonl" || is_plan;
      if (!any_text_will_do)
        expect(row, with_real_paths(row, i, path("file")), code, "another kind of file");
    }
  }
}

/// Replaces each output by a path below /proc, an existing path and one of the other paths.
TEST_F(ExitCodes, OutputsThatCannotBeMadeOrExistAre2) {
  fs::create_directory(path("taken"));
  std::ofstream(path("taken") / "thesis.tex") << "x";
  const std::vector<fs::path> others{path(std::string(300, 'x')), path("file") / "below",
                                     read_only_ / "new", fs::path()};
  std::size_t turn = 0;
  for (const Row& row : rows()) {
    for (std::size_t i = 0; i < row.arguments.size(); ++i) {
      if (row.arguments[i][0] != '>') continue;
      expect(row, with_real_paths(row, i, "/proc/none"), 2, "to be made");
      expect(row, with_real_paths(row, i, others[turn++ % others.size()]), 2, "to be made");
      // reshard adds a step directory to an existing directory of steps.
      const bool adds = row.command.back() == "reshard";
      if (!adds) expect(row, with_real_paths(row, i, path("taken")), 2, "taken");
      if (!row.replaces_files)
        expect(row, with_real_paths(row, i, path("file")), 2, "a file in the way");
    }
  }
  EXPECT_EQ(read_file(path("file")), "not it\n");
}

TEST_F(ExitCodes, AFullDiskIs4) {
  for (const Row& row : rows()) {
    const auto output = std::find_if(row.arguments.begin(), row.arguments.end(),
                                     [](const std::string& word) { return word[0] == '>'; });
    const auto at = static_cast<std::size_t>(output - row.arguments.begin());
    Exit exit;
    if (output == row.arguments.end()) {
      exit = run(row, with_real_paths(row), "", "/dev/full");
    } else if (!full_.empty()) {
      exit = run(row, with_real_paths(row, at, full_ / formatted("out{}", at)));
      for (const auto& entry : fs::directory_iterator(full_)) fs::remove_all(entry.path());
    } else {
      exit = run(row, with_real_paths(row), "ulimit -f 1; ");
    }
    EXPECT_EQ(exit.code, row.reports_problems ? 2 : 4) << line(row.command) << exit.err;
  }
}

TEST_F(ExitCodes, TooFewDescriptorsAre4) {
  const std::string close_inherited = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ";
  // For the other commands, standard streams and one file are enough.
  const std::set<std::string> opens_more{
      "pretrain ", "export ",  "import ",           "checkpoint reshard ", "bench checkpoint ",
      "pack ",     "inspect ", "tokenizer encode ", "tokenizer decode ",   "verify "};
  for (const Row& row : rows()) {
    if (!opens_more.contains(line(row.command))) continue;
    const Exit exit = run(row, with_real_paths(row), close_inherited + "ulimit -n 4; ");
    EXPECT_EQ(exit.code, 4) << line(row.command) << exit.err;
  }
}

}  // namespace
}  // namespace trireme
