/// Runs the whole way of a user: corpus, tokenizer, shards, training on two MPI ranks, checkpoints,
/// export, text generation.

#include <fstream>
#include <sstream>

#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;
using testing::RunMetrics;

class MainJob : public testing::RunProgram {
 protected:
  static Exit data(const Arguments& arguments) {
    Arguments all{TRIREME_DATA_PROGRAM};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return testing::Process(all, {{"OMP_NUM_THREADS", "1"}}, path("data.log")).wait(kLimit_s);
  }
};

TEST_F(MainJob, GoesFromACorpusToASample) {
  const std::string corpus = path("text.jsonl").string();
  const std::string tokenizer = path("tokenizer").string();
  const std::string train_set = path("train_set").string();
  const std::string run = path("job").string();
  ASSERT_EQ(data({"synth", "--output", corpus, "--documents", "800", "--seed", "3"}).code, 0);
  ASSERT_EQ(
      data({"tokenizer", "train", "--input", corpus, "--vocab-size", "600", "--output", tokenizer})
          .code,
      0);
  ASSERT_EQ(data({"pack", "--kind", "pretrain", "--tokenizer", tokenizer, "--input", corpus,
                  "--seq-len", "32", "--output", train_set})
                .code,
            0);
  ASSERT_EQ(data({"verify", train_set}).code, 0);

  const Exit train =
      pretrain("job",
               {"--data", train_set, "--data.valid_path", train_set, "--train.eval_every", "40",
                "--train.steps", "40", "--checkpoint.every", "15", "--checkpoint.keep_last", "2",
                "--parallel.bucket_mb", "0.01", "--optim.lr", "1e-2"},
               {.ranks = 2});
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(train.out, "");

  const RunMetrics metrics = RunProgram::metrics("job");
  ASSERT_EQ(metrics.steps.size(), 40U);
  ASSERT_EQ(metrics.lines.size(), 42U);  // the lines of the steps, of a validation, and of the end
  std::int64_t expected_step = 1;
  for (const auto& [step, line] : metrics.steps) {
    ASSERT_EQ(step, expected_step++);
    for (const char* key : {"step", "tokens", "loss", "grad_norm", "lr", "time", "step_time_s",
                            "tokens_per_s", "data_wait_s", "save_s", "validation_s", "peer_wait_s",
                            "comm_s", "comm_exposed_s", "mem_peak_bytes", "mfu"}) {
      ASSERT_TRUE(line.contains(key) && line[key].is_number()) << key << " in " << line;
    }
    ASSERT_EQ(line["tokens"], step * 12 * 32);
    ASSERT_GT(line["step_time_s"].get<double>(), 0);
    ASSERT_LE(line["comm_exposed_s"].get<double>(), line["comm_s"].get<double>() + 1e-3);
    ASSERT_LT(line["first_bucket_s"], line["last_grad_s"]);  // rank 1 exits during backward
    ASSERT_GT(line["mem_peak_bytes"].get<std::int64_t>(), 1 << 20);
  }
  const std::vector<double> losses = metrics.losses();
  EXPECT_NEAR(losses.front(), 6.4, 0.2);  // ln 600: an untrained model
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  for (const auto& line : metrics.lines) {
    if (line.contains("eval_step")) {
      EXPECT_NEAR(line["valid_loss"].get<double>(), losses.back(), 0.5);
    }
  }
  EXPECT_TRUE(fs::exists(fs::path(run) / "config.toml"));
  EXPECT_EQ(status("job")["state"], "done");

  const Exit list = trireme({"checkpoint", "list", run});
  EXPECT_EQ(list.code, 0);
  EXPECT_NE(list.out.find("step-000000040"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("step-000000030"), std::string::npos) << list.out;
  EXPECT_EQ(list.out.find("step-000000015"), std::string::npos) << "keep_last 2: " << list.out;
  EXPECT_EQ(trireme({"checkpoint", "verify", run}).code, 0);
  EXPECT_NE(trireme({"checkpoint", "inspect", run}).out.find("valid_loss"), std::string::npos)
      << "what checkpoint.keep_best goes by";
  EXPECT_EQ(trireme({"checkpoint", "hash", run}).out.size(), 65U);

  const std::string exported = path("exported").string();
  const Exit to_hf = trireme({"export", "--checkpoint", run, "--output", exported});
  EXPECT_EQ(to_hf.code, 0) << to_hf.err;
  for (const char* file :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_TRUE(fs::exists(fs::path(exported) / file)) << file;
  }
  const Arguments sample{"generate", "--checkpoint",     run,
                         "--prompt", "Once upon a time", "--max-tokens",
                         "12",       "--temperature",    "0"};
  const Exit first = trireme(sample);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_GT(first.out.size(), 3U);
  EXPECT_EQ(first.out.find("Once upon"), std::string::npos) << "only the new text";
  EXPECT_EQ(trireme(sample).out, first.out);

  // The exported model is the trained model: after an import, it generates the same words.
  const std::string imported = path("imported").string();
  const Exit from_hf = trireme({"import", "--hf", exported, "--output", imported});
  ASSERT_EQ(from_hf.code, 0) << from_hf.err;
  Arguments again = sample;
  again[2] = imported;
  EXPECT_EQ(trireme(again).out, first.out);
}

TEST_F(MainJob, ACheckpointCarriesItsTokenizerAndConfiguration) {
  ASSERT_EQ(pretrain("carried", {"--train.steps", "1"}).code, 0);
  const fs::path checkpoint = path("carried") / "checkpoints" / "step-000000001";

  for (const char* file :
       {"config.toml", "tokenizer.json", "tokenizer_config.json", "manifest.json"}) {
    EXPECT_TRUE(fs::exists(checkpoint / file)) << file;
  }
  // The stored configuration starts the same run again.
  ASSERT_EQ(
      testing::Process({TRIREME_PROGRAM, "pretrain", "--config",
                        (checkpoint / "config.toml").string(), "--run", path("again").string()},
                       {{"OMP_NUM_THREADS", "1"}}, path("again.log"))
          .wait(kLimit_s)
          .code,
      0);
  EXPECT_EQ(hash("again"), hash("carried"));

  // A tokenizer that was changed after packing counts as damage.
  std::ofstream(checkpoint / "tokenizer.json", std::ios::app) << " ";
  const Exit verify = trireme({"checkpoint", "verify", checkpoint.string()});
  EXPECT_EQ(verify.code, 3);
  EXPECT_NE(verify.err.find("tokenizer.json"), std::string::npos) << verify.err;
}

/// Returns the losses that the training example of src/README.md prints.
std::vector<double> simple_losses(const std::string& ranks, const std::string& set,
                                  const std::string& folder, const std::string& log) {
  const Exit exit = testing::Process({TRIREME_MPIEXEC, "--oversubscribe", "--bind-to", "none", "-n",
                                      ranks, TRIREME_SIMPLE_TRAINING, set, folder},
                                     {{"OMP_NUM_THREADS", "1"},
                                      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},
                                     log)
                        .wait(60);
  EXPECT_EQ(exit.code, 0) << exit.err;
  std::vector<double> losses;
  std::istringstream lines(exit.out);
  for (std::string word; lines >> word;) {
    if (word == "loss" && lines >> word) losses.push_back(std::stod(word));
  }
  return losses;
}

TEST_F(MainJob, TheTrainingOfTheReadmeRunsOnTwoRanks) {
  const std::string folder = path("simple").string();
  const std::vector<double> two =
      simple_losses("2", set().string(), folder, path("simple.log").string());
  const std::vector<double> one =
      simple_losses("1", set().string(), path("alone").string(), path("alone.log").string());

  ASSERT_EQ(two.size(), 20U);
  ASSERT_EQ(one.size(), 20U);
  EXPECT_LT(two.back(), two.front() - 0.5);
  EXPECT_NEAR(two.back(), one.back(), 1e-3 * one.back());  // fp32: the order of sums differs
  EXPECT_EQ(trireme({"checkpoint", "verify", folder}).code, 0);
}

}  // namespace
}  // namespace trireme
