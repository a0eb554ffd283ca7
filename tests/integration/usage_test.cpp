/// Tests what users see after a wrong command or with a damaged run directory: one message, the
/// right exit code, and nothing harmed.

#include <csignal>
#include <fstream>
#include <regex>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;

class Usage : public testing::RunProgram {
 protected:
  static fs::path checkpoint(const std::string& run, const char* step) {
    return path(run) / "checkpoints" / step;
  }
};

TEST_F(Usage, AnUnknownKeyNamesTheNearestOnceForAllRanks) {
  const Exit exit = pretrain("none", {"--optim.lrr", "1"}, {.ranks = 2});

  expect_refused(exit, 2, {"optim.lrr", "did you mean", "optim.lr"});
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(Usage, AllWrongValuesAreReportedAtOnce) {
  const fs::path file = path("wrong.toml");
  std::ofstream(file) << "[optim]\nbeta1 = 1.5\n[train]\nmicro_batch = 0\nprecison = \"fp32\"\n";

  const Exit exit = pretrain(
      "none", {"--config", file.string(), "--parallel.recompute", "selectiv",
               "--model.num_kv_heads", "3", "--model.preset", "tinny", "--train.global_batch", "-1",
               "--optim.schedule", "cosin", "--train.threads", "x", "--train.steps"});

  expect_refused(exit, 2,
                 {"optim.beta1 = 1.5", "wrong.toml:2", "train.precison", "train.precision",
                  "train.global_batch", "--train.global_batch", "optim.schedule", "train.threads",
                  "--train.steps needs a value", "parallel.recompute = selectiv",
                  "model.preset = tinny", "did you mean 'tiny'"});
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(Usage, AKeyOfAnotherOptimizerAndAnUnknownActivationAreRefused) {
  expect_refused(
      pretrain("none", {"--optim.momentum", "0.9"}), 2,
      {"optim.momentum = 0.9", "not a key of adamw", "beta1, beta2, eps", "--optim.momentum"});
  expect_refused(pretrain("none", {"--optim.name", "lion", "--optim.eps", "1e-6"}), 2,
                 {"optim.eps", "not a key of lion", "weight_decay, beta1, beta2"});
  expect_refused(pretrain("none", {"--model.activation", "swish"}), 2,
                 {"model.activation = swish", "silu, gelu_tanh, relu2"});
  EXPECT_FALSE(fs::exists(path("none")));
  const std::string help =
      std::regex_replace(trireme({"pretrain", "--help-all"}).out, std::regex("\\s+"), " ");
  for (const char* word : {"one of adamw sgd", "sgd: share of the last direction",
                           "lion: decay of the momentum, in [0, 1), default 0.99"})
    EXPECT_NE(help.find(word), std::string::npos) << word << help;
}

TEST_F(Usage, MissingOrMisplacedInputsAreNamed) {
  expect_refused(trireme({"pretrain", "--run", path("none").string()}), 2, {"--data"});
  expect_refused(trireme({"pretrain", "--data", set().string(), "--run", path("none").string()}), 2,
                 {"--model.preset", "tiny, minimind-3", "--init", "model.hidden_size"});
  expect_refused(trireme({"pretrain", "--data", set().string()}), 2, {"--run"});
  expect_refused(pretrain("none", {"--data", "/nowhere"}), 3, {"/nowhere"});
  expect_refused(pretrain("none", {"--train.global_batch", "13"}), 2, {"global_batch", "13"});
  EXPECT_FALSE(fs::exists(path("none")));
  expect_refused(pretrain("none2", {"--resume", "/nowhere"}), 3, {"/nowhere"});
  expect_refused(
      trireme({"eval", "--checkpoint", path("none").string(), "--data", "1 sets/a + 1 b#2"}), 2,
      {"--data = 1 sets/a + 1 b#2 reads as a blend", "Only one token set is allowed"});
  expect_refused(
      trireme({"eval", "--checkpoint", path("none").string(), "--data", "a", "--core", "b"}), 2,
      {"give one of --data SET, --choices FILE and --core BUNDLE"});
  expect_refused(trireme({"eval", "--checkpoint", path("none").string(), "--core", "b",
                          "--max-per-task", "-1"}),
                 2, {"--max-per-task is -1"});
  expect_refused(trireme({"eval", "--checkpoint", path("none").string(), "--data", "a",
                          "--max-per-task", "1"}),
                 2, {"--max-per-task needs --core BUNDLE"});
  expect_refused(trireme({"checkpoint", "verify", "/nowhere"}), 3, {"/nowhere"});
  expect_refused(trireme({"checkpoint", "verify", "/etc/passwd"}), 3, {"/etc/passwd"});
  expect_refused(trireme({"generate", "--checkpoint", path("none2").string(), "--prompt", "x"}), 3,
                 {"none2"});
}

TEST_F(Usage, AModelThatFitsNoMachineIsRefusedWithItsSize) {
  const std::vector<std::pair<Arguments, std::vector<std::string>>> absurd{
      {{"--model.num_layers", "100000000"}, {"model.num_layers = 100000000", "weights", "TB"}},
      {{"--model.hidden_size", "2147483648", "--model.head_dim", "16"},
       {"model.hidden_size = 2147483648"}},
      {{"--model.max_seq_len", "2147483648", "--model.head_dim", "1024"},
       {"model.max_seq_len = 2147483648", "rotary tables"}},
      {{"--train.threads", "5000"}, {"train.threads = 5000", "1024"}}};
  for (const auto& [arguments, words] : absurd)
    expect_refused(pretrain("none", arguments), 2, words);
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(Usage, AnInvalidDataSetIsReportedWithWhatToDo) {
  std::ofstream(path("garbage")) << std::string("\x01\x02\0\xff", 4);
  fs::create_directories(path("nothing"));
  const auto refused = [&](const fs::path& data, int code, const std::string& words) {
    expect_refused(pretrain("none", {"--data", data.string()}), code, {data.string(), words});
  };
  refused(path("garbage"), 3, "neither a token set");
  refused(path("nothing"), 3, "make a token set with `trireme-data pack");
  refused(set() / "shard-00000.h5", 3, "neither a token set");
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(Usage, TextsAndVariablesWithAMisspeltSectionAreRefused) {
  const std::string corpus = path("corpus.jsonl").string();
  expect_refused(pretrain("none", {"--data", corpus}), 2, {"trireme-data pack", corpus});
  expect_refused(pretrain("none", {}, {.environment = {{"TRIREME_OPTM_LR", "1"}}}), 2,
                 {"TRIREME_OPTIM_LR"});
  expect_refused(pretrain("none", {"--optim.lr", "1e-5", "--optim.min_lr", "3e-5"}), 2,
                 {"optim.min_lr = 3e-05"});
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(Usage, ValuesLeftOpenAreChosenSaidAndKept) {
  const Arguments open{"pretrain",
                       "--data",
                       set().string(),
                       "--run",
                       path("open").string(),
                       "--train.device",
                       "cpu",
                       "--train.steps",
                       "1",
                       "--model.preset",
                       "tiny",
                       "--train.micro_batch",
                       "5",
                       "--optim.lr",
                       "1e-5",
                       "--data.split",
                       "90,9,1"};

  const Exit first = trireme(open);

  EXPECT_EQ(first.code, 0) << first.err;
  for (const char* words : {"train.global_batch = 35 is chosen",
                            "global batch 35 = 1 data rank x 5 sequences x 7 accumulation steps",
                            "data.split = 90,9,1, but train.eval_every = 0"})
    EXPECT_NE(first.err.find(words), std::string::npos) << words << " not in " << first.err;
  const std::string config = read_file(path("open") / "config.toml");
  for (const char* line :
       {"global_batch = 35\n", "accumulation = 0\n", "precision = \"fp32\"\n", "min_lr = 1e-06\n"})
    EXPECT_NE(config.find(line), std::string::npos) << line << " not in " << config;

  Arguments again = open;  // a new start would choose 32
  again.insert(again.end(), {"--train.micro_batch", "1", "--train.steps", "2"});
  const Exit second = trireme(again);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err.find("is chosen"), std::string::npos) << second.err;
  EXPECT_EQ(metrics("open").resumed_from, std::vector<std::int64_t>{1});
  again.insert(again.end(), {"--train.steps", "3", "--train.accumulation", "2"});
  expect_refused(trireme(again), 2, {"train.accumulation = 2, makes 2", "train.global_batch = 35"});
}

TEST_F(Usage, AFirstSaveAtTheLastStepMayBeWrittenBehind) {
  ASSERT_EQ(pretrain("behind", {"--train.steps", "3", "--checkpoint.every", "0",
                                "--checkpoint.async", "true"})
                .code,
            0);
  EXPECT_EQ(saved_steps("behind"), std::vector<std::int64_t>{3});
  EXPECT_EQ(status("behind")["state"], "done");
}

TEST_F(Usage, ADirectoryThatIsNotARunIsNotTouched) {
  fs::create_directories(path("papers"));
  std::ofstream(path("papers") / "thesis.tex") << "x";
  expect_refused(pretrain("papers", {}), 2, {"papers", "not a Trireme run"});
  EXPECT_EQ(std::distance(fs::directory_iterator(path("papers")), {}), 1);

  std::ofstream(path("file")) << "x";
  expect_refused(pretrain("file", {}), 2, {"is a file"});
  // No user can write there, not even root.
  expect_refused(trireme({"pretrain", "--data", set().string(), "--model.preset", "tiny", "--run",
                          "/proc/self/run"}),
                 2, {"/proc/self/run"});
}

TEST_F(Usage, ARunIsContinuedOnlyAsItWas) {
  ASSERT_EQ(pretrain("first", {"--train.steps", "2"}).code, 0);
  const std::string before = hash("first");

  expect_refused(
      pretrain("first", {"--train.steps", "3", "--optim.beta1", "0.8", "--model.hidden_size", "64"},
               {.ranks = 2}),
      2, {"optim.beta1 = 0.8", "--optim.beta1", "0.9", "model.hidden_size = 64", "32"});
  expect_refused(pretrain("first", {"--train.steps", "3", "--resume", "never"}), 2,
                 {"never", "first"});

  EXPECT_EQ(hash("first"), before);
  EXPECT_EQ(metrics("first").steps.size(), 2U);
}

TEST_F(Usage, ARunBranchesOffAnOlderCheckpointOnlyInAnotherDirectory) {
  ASSERT_EQ(pretrain("trunk", {"--train.steps", "4", "--checkpoint.every", "2"}).code, 0);
  const std::string older = checkpoint("trunk", "step-000000002").string();
  const std::string newest = checkpoint("trunk", "step-000000004").string();
  const Arguments arguments{"--train.steps", "6", "--resume"};
  const auto from = [&](const std::string& start) {
    Arguments all = arguments;
    all.push_back(start);
    return all;
  };

  expect_refused(pretrain("trunk", from(older)), 2, {older, "step-000000004", "another --run"});
  EXPECT_EQ(saved_steps("trunk").size(), 2U);
  EXPECT_EQ(pretrain("branch", from(older)).code, 0);
  EXPECT_EQ(metrics("branch").resumed_from, std::vector<std::int64_t>{2});
  // Repeat the command, like a requeued job: it continues with the stored configuration.
  Arguments longer = from(older);
  longer[1] = "8";
  EXPECT_EQ(pretrain("branch", longer).code, 0);
  EXPECT_EQ(metrics("branch").resumed_from, (std::vector<std::int64_t>{2, 6}));
  EXPECT_EQ(pretrain("trunk", from(newest)).code, 0);
  EXPECT_EQ(metrics("trunk").resumed_from, std::vector<std::int64_t>{4});
}

TEST_F(Usage, ARunInUseIsRefusedAndUnharmed) {
  const Arguments arguments{"--train.steps", "6", "--checkpoint.every", "2"};
  const auto first = start("shared", arguments, {.fault = "train.step:0:4:stop"});
  ASSERT_TRUE(testing::wait_for([&] { return testing::process_state(first->pid()) == 'T'; }, 60));

  const Exit second = pretrain("shared", arguments);
  first->signal(SIGCONT);
  const Exit end = first->wait(kLimit_s);

  expect_refused(second, 2, {"shared", "process " + std::to_string(first->pid())});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(metrics("shared").steps.size(), 6U);
  EXPECT_EQ(metrics("shared").lines.size(), 7U);  // the lines of the steps and of the end
  EXPECT_EQ(saved_steps("shared").front(), 6);
}

/// Simulates a job that was suspended for long while a job on another host took over: the first job
/// must not save.
TEST_F(Usage, ARunThatLostItsLockEndsAndSavesNothing) {
  const Arguments arguments{"--train.steps", "6", "--checkpoint.every", "2"};
  const auto process = start("taken", arguments, {.fault = "train.step:0:4:stop"});
  ASSERT_TRUE(testing::wait_for([&] { return testing::process_state(process->pid()) == 'T'; }, 60));
  std::string lock = read_file(path("taken") / "LOCK");
  const std::size_t nonce = lock.find("nonce") + std::string("nonce\":\"").size();
  lock[nonce] = lock[nonce] == 'a' ? 'b' : 'a';
  write_file_atomic(path("taken") / "LOCK", lock);

  process->signal(SIGCONT);
  const Exit end = process->wait(kLimit_s);

  expect_refused(end, 2, {"LOCK", "another process"});
  EXPECT_EQ(saved_steps("taken").front(), 2);
  EXPECT_EQ(read_file(path("taken") / "LOCK"), lock) << "the other's lock stays";
}

TEST_F(Usage, ADamagedNewestCheckpointIsPassedOver) {
  const Arguments arguments{"--train.steps", "6", "--checkpoint.every", "2"};
  ASSERT_EQ(pretrain("damaged", arguments).code, 0);
  const std::string whole = hash("damaged");
  damage(checkpoint("damaged", "step-000000006"));
  EXPECT_EQ(trireme({"checkpoint", "verify", path("damaged").string()}).code, 3);
  const Exit other = pretrain("other", {"--init", path("damaged").string(), "--train.steps", "6"});
  EXPECT_EQ(other.code, 3) << "a new run does not begin with other weights than those asked for";
  EXPECT_NE(other.err.find("step-000000004"), std::string::npos) << other.err;

  const Exit exit = pretrain("damaged", arguments, {.ranks = 2});

  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_NE(exit.err.find("step-000000006 is damaged"), std::string::npos) << exit.err;
  EXPECT_EQ(metrics("damaged").resumed_from, std::vector<std::int64_t>{4});
  EXPECT_EQ(saved_steps("damaged").front(), 6);
  EXPECT_TRUE(fs::exists(checkpoint("damaged", "damaged-step-000000006")));
  EXPECT_EQ(trireme({"checkpoint", "verify", path("damaged").string()}).code, 0);
  EXPECT_NE(hash("damaged"), "");
  EXPECT_EQ(metrics("damaged").steps.size(), 6U);
}

TEST_F(Usage, WhenAllCheckpointsAreDamagedNothingIsTouched) {
  const Arguments arguments{"--train.steps", "4", "--checkpoint.every", "2"};
  ASSERT_EQ(pretrain("ruined", arguments).code, 0);
  damage(checkpoint("ruined", "step-000000002"));
  fs::resize_file(checkpoint("ruined", "step-000000004") / "manifest.json", 100);
  const std::string metrics_before = read_file(path("ruined") / "metrics.jsonl");

  expect_refused(pretrain("ruined", arguments, {.ranks = 2}), 3, {"ruined", "nothing was changed"});

  EXPECT_EQ(saved_steps("ruined"), (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(read_file(path("ruined") / "metrics.jsonl"), metrics_before);
}

TEST_F(Usage, AnotherLengthThanThePackedOneTrains) {
  const Exit exit = pretrain("long", {"--train.steps", "2", "--train.seq_len", "48"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  EXPECT_EQ(metrics("long").steps[2]["tokens"], 2 * 12 * 48);
  expect_refused(pretrain("longer", {"--train.seq_len", "65"}), 2,
                 {"train.seq_len = 65", "model.max_seq_len = 64"});
}

TEST_F(Usage, HelpVersionAndConfiguration) {
  const Exit help = trireme({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* word : {"pretrain", "generate", "checkpoint", "export", "config", "completion"})
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  const Exit pretrain_help = trireme({"pretrain", "--help"});
  EXPECT_EQ(pretrain_help.code, 0);
  for (const char* word : {"--run", "schedule=gpipe|1f1b|", "recompute=none|selective|full",
                           "precision=", "preset=tiny|"})
    EXPECT_NE(pretrain_help.out.find(word), std::string::npos) << word << pretrain_help.out;
  const Exit script = trireme({"completion", "bash"});
  EXPECT_NE(script.out.find("--parallel.recompute) value=1 words='none selective full'"),
            std::string::npos);
  const Exit version = trireme({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("trireme ", 0), 0U);
  expect_refused(trireme({"pretrian"}), 2, {"did you mean 'pretrain'"});

  std::ofstream(path("run.toml")) << "[optim]\nlr = 0.01\nwarmup_steps = 7\n";
  const Exit show = trireme({"config", "show", "--config", path("run.toml").string(),
                             "--train.steps", "5", "--model.preset", "tiny", "--origin"},
                            {.environment = {{"TRIREME_OPTIM_LR", "0.02"}}});
  EXPECT_EQ(show.code, 0) << show.err;
  const auto line_of = [&](const std::string& key) {
    const std::size_t at = show.out.find(key + " ");
    return at == std::string::npos ? "" : show.out.substr(at, show.out.find('\n', at) - at);
  };
  EXPECT_NE(line_of("optim.lr").find("TRIREME_OPTIM_LR"), std::string::npos) << show.out;
  EXPECT_NE(line_of("optim.lr").find("0.02"), std::string::npos);
  EXPECT_NE(line_of("optim.warmup_steps").find("run.toml:3"), std::string::npos);
  EXPECT_NE(line_of("train.steps").find("--train.steps"), std::string::npos);
  EXPECT_NE(line_of("model.hidden_size").find("preset tiny"), std::string::npos);
  EXPECT_NE(line_of("optim.beta1").find("default"), std::string::npos);
  EXPECT_EQ(line_of("optim.momentum"), "") << "adamw has none";
}

}  // namespace
}  // namespace trireme
