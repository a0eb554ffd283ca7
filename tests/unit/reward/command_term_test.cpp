#include "reward/command_term.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.hpp"
#include "core/timer.hpp"

namespace trireme::reward {
namespace {

namespace fs = std::filesystem;

/// Runs a program for three samples. Returns its error as "KIND TEXT".
std::string command_error(const std::string& command, double timeout_s = 10) {
  const auto term = make_command_term({.command = command, .timeout_s = timeout_s});
  const std::vector<Sample> samples(3, Sample{.text = "x"});
  try {
    const std::vector<double> rewards = term->score(samples);
    return "no error";
  } catch (const Error& error) {
    return formatted("{} {}", exit_code(error.kind()), error.what());
  }
}

bool has_children() {
  return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD;
}

/// Waits until the process is gone, at most 10 s.
bool is_gone(pid_t pid) {
  const Timer timer;
  while (timer.seconds() < 10) {
    if (::kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

class CommandTermTest : public ::testing::Test {
 protected:
  CommandTermTest() {
    std::string path = (fs::temp_directory_path() / "command_term_XXXXXX").string();
    directory_ = ::mkdtemp(path.data());
  }

  ~CommandTermTest() override { fs::remove_all(directory_); }

  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream in(directory_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path directory_;
};

TEST_F(CommandTermTest, WritesOneLineForEachSampleAndReadsOneReward) {
  const std::string log = (directory_ / "log").string();
  const auto term = make_command_term(
      {.command = "n=0; while IFS= read -r line; do printf '%s\\n' \"$line\" >> " + log +
                  "; n=$((n+1)); if [ $n = 2 ]; then echo '{\"reward\": -1.5}'; else echo $n; fi; "
                  "done"});
  const std::vector<std::uint32_t> ids{4, 5};
  const std::string record = R"({"gt": ["a\"b"]})";
  const std::vector<std::string_view> turns{"one", "two\nlines"};
  const std::vector<Sample> first{
      {.text = "two\nlines", .ids = ids, .truncated = true, .record = &record, .turns = turns},
      {.text = "x"}};

  EXPECT_EQ(term->score(first), (std::vector<double>{1, -1.5}));
  EXPECT_EQ(term->score(std::vector<Sample>(1)), std::vector<double>{3}) << "the same process";
  EXPECT_EQ(term->score({}), std::vector<double>{});
  EXPECT_EQ(content("log"),
            R"({"text":"two\nlines","ids":[4,5],"turns":["one","two\nlines"],"truncated":true,)"
            R"("record":{"gt":["a\"b"]}})"
            "\n"
            R"({"text":"x","ids":[],"turns":["x"],"truncated":false,"record":{}})"
            "\n"
            R"({"text":"","ids":[],"turns":[""],"truncated":false,"record":{}})"
            "\n");
}

TEST_F(CommandTermTest, AnswersMayComeAfterAllSamplesWithoutADeadlock) {
  // 150 lines of 4 kB fill the pipes of both directions.
  const std::string text(4'000, 'x');
  const std::vector<Sample> samples(150, Sample{.text = text});
  const auto term = make_command_term(
      {.command = "n=0; while [ $n -lt 150 ] && IFS= read -r x; do n=$((n+1)); done; "
                  "while [ $n -gt 0 ]; do echo 1; n=$((n-1)); done; cat > /dev/null"});

  EXPECT_EQ(term->score(samples), std::vector<double>(150, 1));
}

TEST_F(CommandTermTest, EveryAnswerThatIsNoFiniteNumberIsAnError) {
  for (const char* answer : {"NaN", "nan", "inf", "1e999", "zero", "", "[1]", "{}", "null", "true",
                             "{\"reward\": \"1\"}", "1 2"}) {
    const std::string error = command_error(cat("while read -r x; do echo '", answer, "'; done"));
    EXPECT_TRUE(error.starts_with("3 rl.reward_command: the program `while")) << error;
    EXPECT_NE(error.find(formatted("answered '{}' for sample 0", answer)), std::string::npos)
        << error;
  }
}

TEST_F(CommandTermTest, AProgramThatEndsIsAnErrorWithItsLastWords) {
  const std::string crash = command_error("read -r x; echo 1; echo 'no model.bin' >&2; exit 7");
  EXPECT_TRUE(crash.starts_with("3 ")) << crash;
  EXPECT_NE(crash.find("ended with exit code 7 after 1 of 3 answers"), std::string::npos) << crash;
  EXPECT_NE(crash.find("standard error: no model.bin"), std::string::npos) << crash;
  EXPECT_NE(command_error("kill -9 $$").find("was killed by signal 9"), std::string::npos);
  EXPECT_NE(command_error("/no/such/program").find("exit code 127"), std::string::npos);
  EXPECT_NE(command_error("exec 1>&-; sleep 60").find("closed its output after 0"),
            std::string::npos);
  EXPECT_FALSE(has_children());
}

TEST_F(CommandTermTest, ALateAnswerIsAnErrorAndEndsTheProgram) {
  const Timer timer;
  const std::string error = command_error("read -r x; echo 1; echo waiting >&2; sleep 60", 0.3);

  EXPECT_TRUE(error.starts_with("4 ")) << error;
  EXPECT_NE(error.find("did not answer within 0.3 s, after 1 of 3 answers"), std::string::npos)
      << error;
  EXPECT_NE(error.find("standard error: waiting"), std::string::npos) << error;
  EXPECT_LT(timer.seconds(), 20);
  EXPECT_FALSE(has_children());
}

TEST_F(CommandTermTest, MoreLinesThanSamplesAreAnError) {
  // One write, so that all lines arrive together.
  EXPECT_NE(command_error("read -r x; printf '1\\n1\\n1\\n1\\n'; sleep 5")
                .find("wrote 1 line too many, so its answers may belong to other input lines"),
            std::string::npos);
  const auto term = make_command_term({.command = "read -r x; echo 1; sleep 0.1; echo 2; cat"});
  term->score(std::vector<Sample>(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_THROW(term->score(std::vector<Sample>(1)), Error) << "a line too many came late";
}

TEST_F(CommandTermTest, AnEndlessLineIsAnErrorBeforeMemoryIsFull) {
  EXPECT_NE(command_error("yes | tr -d '\\n'").find("an answer of more than 16 MiB"),
            std::string::npos);
}

TEST_F(CommandTermTest, AfterAnErrorTheProgramStartsAgain) {
  const std::string flag = (directory_ / "flag").string();
  const auto term =
      make_command_term({.command = "[ -e " + flag + " ] || { touch " + flag + "; exit 1; }; " +
                                    "while read -r x; do echo 4; done"});
  EXPECT_THROW(term->score(std::vector<Sample>(1)), Error);
  EXPECT_EQ(term->score(std::vector<Sample>(1)), std::vector<double>{4});
}

TEST_F(CommandTermTest, TheEndOfTheTermEndsAProgramThatDoesNotStop) {
  const std::string pids = (directory_ / "pids").string();
  const Timer timer;
  {
    const auto term =
        make_command_term({.command = "trap '' TERM HUP; sleep 600 & echo $$ $! > " + pids +
                                      "; read -r x; echo 1; while true; do sleep 1; done"});
    term->score(std::vector<Sample>(1));
  }
  EXPECT_LT(timer.seconds(), 20);
  pid_t shell = 0;
  pid_t child = 0;
  std::ifstream(pids) >> shell >> child;
  ASSERT_GT(child, 0);
  EXPECT_TRUE(is_gone(shell));
  EXPECT_TRUE(is_gone(child)) << "the kernel reparents it; the group was killed";
  EXPECT_FALSE(has_children()) << "no zombie";
}

TEST_F(CommandTermTest, AProgramDiesWithAKilledRun) {
  const std::string pids = (directory_ / "pid").string();
  const pid_t run = ::fork();
  if (run == 0) {
    const auto term = make_command_term({.command = "echo $$ > " + pids +
                                                    "; read -r x; echo 1; trap '' TERM HUP; "
                                                    "while true; do sleep 0.1; done"});
    term->score(std::vector<Sample>(1));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(run, &status, 0), run);
  ASSERT_TRUE(WIFSIGNALED(status));
  pid_t program = 0;
  std::ifstream(pids) >> program;
  ASSERT_GT(program, 0);
  EXPECT_TRUE(is_gone(program));
}

}  // namespace
}  // namespace trireme::reward
