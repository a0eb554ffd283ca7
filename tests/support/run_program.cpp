#include "support/run_program.hpp"

#include <algorithm>
#include <fstream>

#include "checkpoint/format/folder.hpp"
#include "core/files/file.hpp"
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
  all.insert(all.end(), {program(),
                         "pretrain",
                         "--data",
                         set().string(),
                         "--run",
                         path(run).string(),
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
                         "2"});
  all.insert(all.end(), more.begin(), more.end());
  std::map<std::string, std::string> environment = how.environment;
  environment["OMP_NUM_THREADS"] = "1";
  environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
  environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  environment["CODES"] = folder_->path().string();
  if (!how.fault.empty()) {
    environment["TRIREME_FAULT"] = how.fault;
    environment["TRIREME_ALLOW_FAULTS"] = "1";
  }
  for (int rank = 0; rank < how.ranks; ++rank) fs::remove(path("code." + std::to_string(rank)));
  return std::make_unique<Process>(all, environment,
                                   path(fs::path(run).filename().string() + ".log"));
}

Exit RunProgram::pretrain(const std::string& run, const Arguments& more, const Start& how) {
  const Exit exit = start(run, more, how)->wait(kLimit_s);
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
