#include "support/run_program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "checkpoint/format/folder.hpp"
#include "core/files/file.hpp"
#include "core/timer.hpp"
#include "support/program_server.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

/// Returns the program under test: bin/trireme next to the directory of this test. The build
/// directory and a bundle of tests/gpu have the same layout.
std::string program() {
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "../bin/trireme";
  return fs::exists(beside) ? beside.lexically_normal().string() : TRIREME_PROGRAM;
}

/// Returns the command that trains a tiny model: 2 layers, width 32, global batch 12.
Arguments pretrain_command(const std::string& set, const std::string& run, const Arguments& more) {
  Arguments all{program(),
                "pretrain",
                "--data",
                set,
                "--run",
                run,
                "--train.device",
                "cpu",
                "--model.preset",
                "tiny",
                "--model.hidden_size",
                "32",
                "--model.num_layers",
                "2",
                "--model.num_heads",
                "2",
                "--model.num_kv_heads",
                "1",
                "--model.intermediate_size",
                "64",
                "--model.max_seq_len",
                "64",
                "--train.micro_batch",
                "2",
                "--train.global_batch",
                "12",
                "--optim.lr",
                "3e-3",
                "--optim.warmup_steps",
                "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::map<std::string, std::string> environment_of(const Start& how, const fs::path& folder) {
  std::map<std::string, std::string> environment = how.environment;
  environment["OMP_NUM_THREADS"] = "1";
  environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
  environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  environment["CODES"] = folder.string();
  if (!how.fault.empty()) {
    environment["TRIREME_FAULT"] = how.fault;
    environment["TRIREME_ALLOW_FAULTS"] = "1";
  }
  return environment;
}

/// Runs one command of the program to its end. LibTorch is loaded once for all commands of this
/// process.
Exit run_loaded(const Arguments& arguments, const std::map<std::string, std::string>& environment,
                const std::string& log, double limit_s) {
  static ProgramServer server(program(), TRIREME_LOADED_PROGRAM);
  const std::string out = log + ".out";
  const std::string err = log + ".err";
  const auto file = [](const std::string& name) {
    return Fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  };
  pid_t pid = -1;
  {
    const Fd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const Fd streams[] = {file(out), file(err)};
    pid = server.start(arguments, environment, {in.get(), streams[0].get(), streams[1].get()});
  }
  const Timer timer;
  Exit exit;
  int status = 0;
  // Until the process that forked it has ended, the program is not a child of this process.
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    if (!exit.timed_out && timer.seconds() > limit_s) {
      exit.timed_out = true;
      ::kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  exit.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  exit.seconds = timer.seconds();
  exit.out = read_file(out);
  exit.err = read_file(err);
  return exit;
}

/// Runs its arguments and writes their exit code into the directory $CODES, even if mpirun sends
/// SIGTERM meanwhile.
constexpr const char* kKeepCode = R"(trap '' TERM
"$@"
code=$?
echo $code > "$CODES/code.$OMPI_COMM_WORLD_RANK"
exit $code)";

}  // namespace

std::unique_ptr<TestDirectory> RunProgram::folder_;

std::vector<double> RunMetrics::losses() const {
  std::vector<double> result;
  for (const auto& [step, line] : steps) result.push_back(line.at("loss").get<double>());
  return result;
}

void RunProgram::SetUpTestSuite() {
  folder_ = std::make_unique<TestDirectory>("runs");
  const std::string corpus = (folder_->path() / "corpus.jsonl").string();
  data_prep::write_synth(corpus, 600, 5, false);
  data_prep::PackConfig config = pack_config(corpus, set());
  config.seq_len = 32;
  testing::pack_with(config, tokenizer_of(folder_->path(), corpus), nullptr);
}

void RunProgram::TearDownTestSuite() {
  folder_.reset();
}

std::unique_ptr<Process> RunProgram::start(const std::string& run, const Arguments& more,
                                           const Start& how) {
  Arguments all;
  if (how.ranks > 1) {
    all = {TRIREME_MPIEXEC,          "--oversubscribe", "--bind-to", "none", "-n",
           std::to_string(how.ranks)};
    if (how.keep_rank_codes) all.insert(all.end(), {"/bin/sh", "-c", kKeepCode, "sh"});
  }
  const Arguments command = pretrain_command(set().string(), path(run).string(), more);
  all.insert(all.end(), command.begin(), command.end());
  for (int rank = 0; rank < how.ranks; ++rank) fs::remove(path("code." + std::to_string(rank)));
  return std::make_unique<Process>(all, environment_of(how, folder_->path()),
                                   path(fs::path(run).filename().string() + ".log"));
}

Exit RunProgram::pretrain(const std::string& run, const Arguments& more, const Start& how) {
  const bool loaded = how.ranks == 1 && !how.keep_rank_codes && fs::exists(TRIREME_LOADED_PROGRAM);
  const std::string log = path(fs::path(run).filename().string() + ".log").string();
  const Exit exit = loaded ? run_loaded(pretrain_command(set().string(), path(run).string(), more),
                                        environment_of(how, folder_->path()), log, kLimit_s)
                           : start(run, more, how)->wait(kLimit_s);
  EXPECT_FALSE(exit.timed_out) << run << " hangs: " << exit.err;
  return exit;
}

Exit RunProgram::mpirun(int ranks, const Arguments& command,
                        const std::map<std::string, std::string>& environment) {
  Arguments all{TRIREME_MPIEXEC,      "--oversubscribe", "--bind-to", "none", "-n",
                std::to_string(ranks)};
  all.insert(all.end(), command.begin(), command.end());
  std::map<std::string, std::string> variables = environment;
  variables["OMP_NUM_THREADS"] = "1";
  variables["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
  variables["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  const Exit exit = Process(all, variables, path("mpirun.log")).wait(kLimit_s);
  EXPECT_FALSE(exit.timed_out) << command[1] << " hangs: " << exit.err;
  return exit;
}

Exit RunProgram::trireme(const Arguments& arguments, const Start& how) {
  Arguments all{program()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> environment = how.environment;
  environment["OMP_NUM_THREADS"] = "1";
  if (fs::exists(TRIREME_LOADED_PROGRAM))
    return run_loaded(all, environment, path("command.log").string(), kLimit_s);
  return Process(all, environment, path("command.log")).wait(kLimit_s);
}

RunMetrics RunProgram::metrics(const std::string& run) {
  RunMetrics result;
  std::ifstream file(path(run) / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line, run + "/metrics.jsonl");
    result.lines.push_back(json);
    if (json.contains("resumed_from"))
      result.resumed_from.push_back(json["resumed_from"].get<std::int64_t>());
    if (json.contains("step")) result.steps[json["step"].get<std::int64_t>()] = json;
  }
  return result;
}

std::string RunProgram::hash(const std::string& run) {
  const Exit exit = trireme({"checkpoint", "hash", path(run).string()});
  EXPECT_EQ(exit.code, 0) << exit.err;
  return exit.out;
}

std::vector<std::int64_t> RunProgram::saved_steps(const std::string& run) {
  return checkpoint::list_steps(path(run) / "checkpoints");
}

Json RunProgram::status(const std::string& run) {
  return read_json(path(run) / "status.json");
}

int RunProgram::rank_code(int rank) {
  std::ifstream file(path("code." + std::to_string(rank)));
  int code = -1;
  file >> code;
  return code;
}

std::set<int> RunProgram::rank_codes(int num_ranks) {
  std::set<int> codes;
  for (int rank = 0; rank < num_ranks; ++rank) codes.insert(rank_code(rank));
  codes.erase(-1);
  return codes;
}

std::size_t RunProgram::count(const std::string& text, const std::string& part) {
  std::size_t number = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++number;
  return number;
}

void RunProgram::expect_refused(const Exit& exit, int code, const std::vector<std::string>& words) {
  EXPECT_EQ(exit.code, code) << exit.err;
  EXPECT_EQ(count(exit.err, "trireme: error:"), 1U) << exit.err;
  for (const std::string& word : words)
    EXPECT_NE(exit.err.find(word), std::string::npos) << "no '" << word << "' in: " << exit.err;
}

void RunProgram::damage(const fs::path& step) {
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(step)) {
    if (entry.path().extension() == ".h5") shards.push_back(entry.path());
  }
  ASSERT_FALSE(shards.empty()) << step;
  const fs::path first = *std::min_element(shards.begin(), shards.end());
  std::string bytes = read_file(first);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(first, std::ios::binary) << bytes;
}

}  // namespace trireme::testing
