/// What a user meets whose layout cannot be, or has keys that change nothing.

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
                 {"parallel.tp * cp * pp = 15", "2 ranks", "2 cp = 10",
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
