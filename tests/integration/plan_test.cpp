/// `trireme plan` from outside: what it proposes, pretrain takes; where nothing fits, it says what would.

#include <nlohmann/json.hpp>
#include <sstream>

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

TEST_F(PlanLayouts, ThatArePrintedCanBeStarted) {
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

TEST_F(PlanLayouts, ThatDoNotFitEndWithFourAndWhatWould) {
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
}

}  // namespace
}  // namespace trireme
