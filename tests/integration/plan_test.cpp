/// Runs `trireme plan` as a program: pretrain accepts every layout that it proposes. If no layout
/// fits, it says what would fit.

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

class PlanLayouts : public testing::RunProgram {
 protected:
  static Exit plan(Arguments more) {
    more.insert(more.begin(), "plan");
    return trireme(more);
  }

  static Arguments words(const std::string& text) {
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
  }
};

TEST_F(PlanLayouts, CanBeStartedIfTheyArePrinted) {
  const Exit exit =
      plan({"--gpu", "cpu", "--gpus-per-node", "2", "--top", "2", "--json", "--model.hidden_size",
            "32", "--model.num_layers", "2", "--model.num_heads", "4", "--model.vocab_size", "300",
            "--train.seq_len", "32", "--train.global_batch", "12"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const Json json = parse_json(exit.out, "plan");
  ASSERT_EQ(json["layouts"].size(), 2U);
  EXPECT_TRUE(json["predicted"].get<bool>());
  for (const Json& one : json["layouts"]) {
    for (const char* key :
         {"parallel", "micro_batch", "step_time_s", "tokens_per_s_per_gpu", "mfu", "bubble_share"})
      EXPECT_TRUE(one.contains(key)) << key;
    for (const char* axis : {"tp", "cp", "ep", "dp", "pp"})
      EXPECT_TRUE(one["exposed_s"].contains(axis)) << axis;
    double sum = 0;
    for (const char* part :
         {"weights", "main", "grads", "optimizer", "activations", "logits", "buffers"})
      sum += one["memory_bytes"][part].get<double>();
    EXPECT_NEAR(one["memory_bytes"]["total"].get<double>(), sum, 8);

    Arguments keys = words(one["options"].get<std::string>());
    keys.insert(keys.end(), {"--train.steps", "1"});
    const std::string run = "of-" + one["micro_batch"].dump() + one["parallel"]["tp"].dump() +
                            one["parallel"]["cp"].dump() + one["parallel"]["pp"].dump();
    const Exit started = pretrain(run, keys, {.ranks = 2});
    EXPECT_EQ(started.code, 0) << one["options"] << "\n" << started.err;
  }
}

// The configuration file has an accumulation, which gives another batch size on other data ranks.
TEST_F(PlanLayouts, StartTheUpdateThatWasPlanned) {
  const std::string file = path("plan.toml").string();
  write_file_atomic(
      file,
      "[model]\nhidden_size = 32\nnum_layers = 2\nnum_heads = 4\n"
      "[train]\nmicro_batch = 1\naccumulation = 5\n[parallel]\ntp = 2\nzero = 3\nzero_shard = 2\n");
  const Exit exit =
      plan({"--config", file, "--gpu", "cpu", "--gpus-per-node", "2", "--json", "--train.seq_len",
            "24", "--model.vocab_size", "300", "--parallel.tp", "1", "--parallel.zero", "0"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const Json planned = parse_json(exit.out, "plan");
  EXPECT_EQ(planned["global_batch"], 10);
  Arguments start{TRIREME_PROGRAM,  "pretrain",
                  "--config",       file,
                  "--data",         set().string(),
                  "--run",          path("as-planned").string(),
                  "--train.steps",  "1",
                  "--train.device", "cpu"};
  for (std::string& word : words(planned["layouts"][0]["options"].get<std::string>()))
    start.push_back(std::move(word));

  const Exit started = mpirun(2, start);

  ASSERT_EQ(started.code, 0) << planned["layouts"][0]["options"] << "\n" << started.err;
  const std::string config = read_file(path("as-planned") / "config.toml");
  for (const char* key : {"global_batch = 10\n", "seq_len = 24\n", "tp = 1\n", "zero = 0\n"})
    EXPECT_NE(config.find(key), std::string::npos) << key << config;
}

TEST_F(PlanLayouts, EndWithTwoAndAllReasonsIfTheyAreInvalid) {
  const Arguments moe{"--gpu", "h100", "--model.preset", "minimind-3-moe"};
  const auto refused = [&](Arguments more, const std::vector<std::string>& says) {
    more.insert(more.begin(), moe.begin(), moe.end());
    expect_refused(plan(more), 2, says);
  };
  refused({"--parallel.ep", "3"}, {"parallel.ep = 3", "must divide model.num_experts",
                                   "the nearest layout that works: --parallel.ep "});
  refused(
      {"--gpus-per-node", "4", "--parallel.tp", "8"},
      {"parallel.tp * cp * pp = 8", "4 ranks", "the nearest layout that works: --parallel.tp 4"});
  refused({"--gpus-per-node", "4", "--train.global_batch", "7", "--parallel.tp", "1",
           "--parallel.cp", "1", "--parallel.pp", "1"},
          {"batch", "What would help: --train.global_batch 8"});
}

TEST_F(PlanLayouts, EndWithFourAndAChangeThatFitsIfTheyDoNotFit) {
  expect_refused(plan({"--gpu", "a100-40", "--nodes", "1", "--gpus-per-node", "1", "--model.preset",
                       "gpt-7.1b", "--train.micro_batch", "1"}),
                 4, {"memory", "What would help: ", "--nodes "});
}

TEST_F(PlanLayouts, RefusesWhatIsNoCluster) {
  const Arguments model{"--model.preset", "tiny"};
  const auto refused = [&](Arguments more, const std::vector<std::string>& words) {
    more.insert(more.end(), model.begin(), model.end());
    expect_refused(plan(more), 2, words);
  };
  refused({}, {"--gpu"});
  refused({"--gpu", "v100"}, {"--gpu v100", "h100", "a100-40"});
  refused({"--gpu", "h100", "--nodes", "0"}, {"--nodes 0"});
  refused({"--gpu", "h100", "--nodes", "60000"}, {"--nodes 60000", "65536"});
  refused({"--gpu", "h100", "--top", "0"}, {"--top 0"});
  refused({"--gpu", "h100", "--calibration", "absent.json"}, {"--calibration absent.json"});
  expect_refused(plan({"--gpu", "h100"}), 2, {"--model.preset"});
  const Exit bench = trireme({"bench", "step", "--steps", "1", "--train.seq_len", "32", "--json"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  write_file_atomic(path("bench.json"), bench.out);
  refused({"--gpu", "h100", "--calibration", path("bench.json").string()},
          {"row 1: device = cpu, must be cuda with --gpu h100"});
}

TEST_F(PlanLayouts, OfAScheduleSFileHaveItsMicroBatches) {
  const std::string file = path("list.txt").string();
  write_file_atomic(file, "F0.0 F0.1 BW0.0 BW0.1\nF1.0 BW1.0 F1.1 BW1.1\n");
  const auto with_file = [&](const char* batch) {
    return plan({"--gpu", "h100", "--gpus-per-node", "2", "--model.preset", "tiny", "--parallel.pp",
                 "2", "--parallel.schedule", file, "--train.global_batch", batch});
  };

  expect_refused(with_file("3"), 2, {"schedule", "What would help: --train.global_batch 2"});
  const Exit exit = with_file("8");
  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_EQ(count(exit.out, "--train.micro_batch 4 "), 1U) << exit.out;
}

TEST_F(PlanLayouts, TpIsSearchedBesideAGivenEtp) {
  const Exit exit =
      plan({"--gpu", "h100", "--gpus-per-node", "4", "--model.preset", "minimind-3-moe",
            "--train.seq_len", "64", "--parallel.etp", "2", "--json"});

  ASSERT_EQ(exit.code, 0) << exit.err;
  for (const Json& layout : Json::parse(exit.out).at("layouts"))
    EXPECT_EQ(layout.at("parallel").at("tp").get<int>() % 2, 0) << layout.at("parallel");
}

TEST_F(PlanLayouts, VerifyLayoutRefusesSchedulesThatAreNotWhatIsAskedFor) {
  const std::string file = path("late.txt").string();
  write_file_atomic(file, "F0.0 F0.1 BW0.0 BW0.1\nF1.0 F1.1 B1.0 B1.1 W1.1 W1.0\n");
  const auto verify = [&](Arguments more) {
    more.insert(more.begin(), {"verify-layout", "--ranks", "2", "--model.preset", "tiny",
                               "--model.tie_embeddings", "false", "--train.accumulation", "2",
                               "--parallel.pp", "2"});
    return trireme(more);
  };

  EXPECT_EQ(verify({"--parallel.schedule", file}).code, 0);
  expect_refused(verify({"--parallel.schedule", file, "--parallel.reproducible", "true"}), 2,
                 {"parallel.reproducible = true", "W1.1 is not in the order"});
  expect_refused(verify({"--parallel.schedule", "auto", "--parallel.virtual_stages", "2",
                         "--parallel.in_flight", "1", "--model.num_layers", "4"}),
                 2, {"parallel.in_flight = 1", "at least 2"});
  expect_refused(trireme({"verify-layout", "--ranks", "2", "--model.preset", "tiny",
                          "--model.num_experts", "4", "--model.moe_intermediate_size", "32",
                          "--parallel.ep", "2", "--lora.rank", "4", "--lora.targets", "gate_proj"}),
                 2, {"gate_proj"});
}

TEST_F(PlanLayouts, PlanScheduleRefusesWhatItCannotDraw) {
  const auto refused = [&](Arguments more, const std::vector<std::string>& says) {
    more.insert(more.begin(), {"plan", "schedule"});
    expect_refused(trireme(more), 2, says);
  };
  const std::string file = path("two.txt").string();
  write_file_atomic(file, "F0.0 BW0.0\nF1.0 BW1.0\n");
  const std::string far = path("far.txt").string();
  write_file_atomic(far, "F0.2147483647\n");

  for (const char* schedule : {"auto", "1f1b"})
    refused({"--schedule", schedule, "--times", "1e308,1e308,1e308,0"},
            {"--times 1e308,1e308,1e308,0", "[0, 1e+12]"});
  refused({"--schedule", file, "--stages", "8", "--micro-batches", "64"},
          {"--stages 8", "--micro-batches 64", "2 ranks, 2 stages, 1 micro-batches"});
  refused({"--schedule", file, "--virtual", "2"}, {"--virtual 2"});
  refused({"--schedule", "auto", "--virtual", "2", "--in-flight", "1"},
          {"--in-flight 1", "at least 2"});
  refused({"--schedule", far}, {"F0.2147483647", "must be below 1000000"});
  EXPECT_EQ(trireme({"plan", "schedule", "--schedule", file, "--stages", "2"}).code, 0);
  const Exit usual = trireme({"plan", "schedule", "--json"});
  EXPECT_EQ(parse_json(usual.out, "plan")["ranks"].size(), 4U) << usual.err;
}

}  // namespace
}  // namespace trireme
