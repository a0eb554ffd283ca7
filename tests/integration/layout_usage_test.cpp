/// Tests the messages for invalid layouts and for keys without effect.

#include <nlohmann/json.hpp>

#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/join.hpp"
#include "pipeline/schedule_file.hpp"
#include "pipeline/simulate.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;
using testing::Process;

class LayoutUsage : public testing::RunProgram {};

TEST_F(LayoutUsage, LayoutsWithoutAnEngineAreRefused) {
  for (const Arguments& keys : std::vector<Arguments>{{"--parallel.ep", "0"},
                                                      {"--parallel.etp", "-1"},
                                                      {"--parallel.pp", "0"},
                                                      {"--parallel.schedule", "zb-w"},
                                                      {"--parallel.virtual_stages", "0"},
                                                      {"--parallel.zero", "4"},
                                                      {"--parallel.zero_persist", "-1"},
                                                      {"--parallel.local_steps", "0"},
                                                      {"--parallel.offload", "all"}}) {
    expect_refused(pretrain("layout", keys), 2, {keys[0].substr(2), keys[1]});
  }
  EXPECT_FALSE(fs::exists(path("layout")));
}

TEST_F(LayoutUsage, LayoutsThatCannotBeComeWithAllReasonsAndTheNearest) {
  const auto verify = [](Arguments keys) {
    keys.insert(keys.begin(), {"verify-layout", "--steps", "1"});
    return trireme(keys);
  };
  expect_refused(pretrain("layout", {"--parallel.tp", "3", "--parallel.cp", "5"}, {.ranks = 2}), 2,
                 {"parallel.tp * cp * pp = 15", "2 ranks", "2 x cp = 10",
                  "the nearest layout that works: --parallel."});
  expect_refused(
      pretrain("layout", {"--parallel.tp", "2", "--parallel.tp_chunks", "5000"}, {.ranks = 2}), 2,
      {"parallel.tp_chunks = 5000", "--parallel.tp_chunks "});
  for (const auto& [keys, says] : std::vector<std::pair<Arguments, std::string>>{
           {{"--parallel.pp", "6"}, "--parallel.pp "},
           {{"--parallel.pp", "2", "--parallel.schedule", "interleaved",
             "--parallel.virtual_stages", "9"},
            "--parallel.virtual_stages 1"},
           {{"--parallel.pp", "2", "--parallel.virtual_stages", "2"},
            "--parallel.virtual_stages 1"},
           {{"--parallel.pp", "2", "--parallel.stages", "E1|7H"}, "--parallel.stages auto"},
           {{"--parallel.pp", "2", "--parallel.local_steps", "2"}, "--parallel.local_steps 1"},
           {{"--parallel.pp", "2", "--parallel.reproducible", "true"},
            "--parallel.reproducible false"}}) {
    expect_refused(pretrain("layout", keys, {.ranks = 2}), 2,
                   {"the nearest layout that works: " + says});
  }
  EXPECT_FALSE(fs::exists(path("layout")));
  expect_refused(verify({"--parallel.tp", "1000000000"}), 2,
                 {"parallel.tp = 1000000000", "[1, 1048576]"});
  expect_refused(verify({"--parallel.tp", "1000000", "--parallel.cp", "1000000"}), 2,
                 {"parallel.tp = 1000000", "256 ranks", "mpirun"});
  expect_refused(verify({"--parallel.tp", "8"}), 2, {"parallel.tp = 8", "model.num_heads = 4"});
  expect_refused(verify({"--ranks", "100000"}), 2, {"--ranks 100000", "256"});
}

TEST_F(LayoutUsage, VerifyLayoutTakesRanksForWholeGridsOfExperts) {
  const Exit verify = trireme({"verify-layout", "--steps", "1", "--model.preset", "minimind-3-moe",
                               "--parallel.ep", "4", "--parallel.zero", "1"});
  EXPECT_EQ(verify.code, 0) << verify.err;
  EXPECT_EQ(count(verify.out, "4 ranks (thread), tp 1 cp 1 pp 1 zero 1 ep 4, fp64"), 1U)
      << verify.out;
  const Exit pipeline = trireme(
      {"verify-layout", "--steps", "1", "--parallel.pp", "2", "--parallel.schedule", "zb-h1"});
  EXPECT_EQ(count(pipeline.out, "tp 1 cp 1 pp 2 zero 0 schedule zb-h1, fp64"), 1U) << pipeline.out;
}

TEST_F(LayoutUsage, LayoutJsonHasTheStagesOfEveryRank) {
  const Exit alone = pretrain("alone", {"--train.steps", "1"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Json one = parse_json(read_file(path("alone") / "layout.json"), "layout.json");
  const Json rank = one.at("per_rank").at(0);
  EXPECT_EQ(rank.at("stages"),
            Json::parse(R"([{"stage": 0, "layers": 2, "embedding": true, "head": true}])"));
  for (const char* key : {"in_flight_peak", "in_flight_peak_formula"}) EXPECT_EQ(rank.at(key), 1);
  for (const char* key : {"bubble_share", "bubble_share_formula"}) EXPECT_EQ(rank.at(key), 0.0);
  EXPECT_FALSE(one.contains("schedule_list"));

  const Exit searched = pretrain("searched",
                                 {"--train.steps", "3", "--parallel.pp", "2", "--parallel.schedule",
                                  "auto", "--train.micro_batch", "3"},
                                 {.ranks = 2});
  ASSERT_EQ(searched.code, 0) << searched.err;
  const Json two = parse_json(read_file(path("searched") / "layout.json"), "layout.json");
  ASSERT_EQ(two.at("schedule_list").size(), 2U);
  EXPECT_TRUE(two["schedule_list"][0].get<std::string>().starts_with("F0.0 ")) << two.dump(2);
  EXPECT_EQ(two.at("schedule"), "auto");
  // Simulate the update that ran the found schedule.
  const pipeline::Simulation found = pipeline::simulate(
      pipeline::parse_schedule(joined(two["schedule_list"].get<std::vector<std::string>>(), "\n"),
                               "schedule_list"),
      {{pipeline::ActionTimes{}}});
  for (std::size_t r = 0; r < 2; ++r) {
    const Json& one_of = two.at("per_rank").at(r);
    EXPECT_EQ(one_of.at("in_flight_peak"), found.peaks[r]);
    EXPECT_EQ(one_of.at("in_flight_peak_formula"), found.peaks[r]);
    EXPECT_EQ(one_of.at("bubble_share_formula"), found.bubble);
  }
}

TEST_F(LayoutUsage, KeysWithoutEffectAreNamedOnce) {
  const Exit verify =
      trireme({"verify-layout", "--steps", "1", "--ranks", "2", "--parallel.sequence_parallel",
               "true", "--parallel.zero_shard", "2"});
  EXPECT_EQ(verify.code, 0) << verify.err;
  EXPECT_EQ(count(verify.err,
                  "without effect here: parallel.sequence_parallel = true (tp is 1), "
                  "parallel.zero_shard = 2 (zero is 0)"),
            1U)
      << verify.err;
  const Exit bench = trireme({"bench", "step", "--steps", "1", "--train.seq_len", "32",
                              "--data.path", "set", "--checkpoint.resume", "never", "--json"});
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_EQ(count(bench.err, "checkpoint.resume, data.path"), 1U) << bench.err;
  const Exit train =
      pretrain("idle", {"--train.steps", "1", "--parallel.zero_persist", "64"}, {.ranks = 2});
  EXPECT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(count(train.err, "without effect here: parallel.zero_persist = 64"), 1U) << train.err;
}

}  // namespace
}  // namespace trireme
