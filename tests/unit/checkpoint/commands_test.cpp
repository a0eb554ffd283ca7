// Runs the commands like a user types them, without LibTorch.
#include "bin/trireme/commands.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/bench/measure.hpp"
#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/plan_interval.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/files/json.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"
#include "unit/checkpoint/two_steps.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

struct Outcome {
  int code = 0;
  std::string out;
};

/// Runs `trireme ARGS...`. Returns the exit code and message of an Error.
Outcome run(const std::vector<std::string>& args) {
  std::vector<const char*> argv{"trireme"};
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  config::CommandLine line("trireme", "trains language models",
                           [] { return std::string("test\n"); });
  comm::SelfCommunicator world;
  const WorldSource source = [&]() -> comm::Communicator& { return world; };
  add_checkpoint_commands(line, source);
  testing::internal::CaptureStdout();
  Outcome outcome;
  std::string message;
  try {
    outcome.code = line.run(static_cast<int>(argv.size()), argv.data());
  } catch (const Error& error) {
    outcome.code = exit_code(error.kind());
    message = error.what();
  }
  std::fflush(stdout);
  outcome.out = testing::internal::GetCapturedStdout() + message;
  return outcome;
}

TEST(CheckpointCommands, EachHasHelp) {
  for (const std::string name : {"list", "verify", "hash", "inspect", "diff", "reshard", "prune"}) {
    const Outcome help = run({"checkpoint", name, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("trireme checkpoint " + name), std::string::npos) << help.out;
  }
  EXPECT_NE(run({"bench", "checkpoint", "--help"}).out.find("--json"), std::string::npos);
  EXPECT_NE(run({"plan-interval", "--help"}).out.find("--stall-s"), std::string::npos);
}

TEST(CheckpointCommands, ListVerifyAndInspectTellWhatIsThere) {
  const TempDirectory folder;
  save_layout(folder / "checkpoints", 1, make_logicals(1), 2, 3);
  save_layout(folder / "checkpoints", 20, make_logicals(2), 2, 3);
  const auto list = [&] { return checkpoint_list(folder.path()); };
  const std::string listed = list_text(list());
  EXPECT_TRUE(listed.starts_with("step-000000020  ")) << listed;
  EXPECT_NE(listed.find("2 shards"), std::string::npos) << listed;
  EXPECT_NE(verify_alone(folder.path()).find("step-000000001  good"), std::string::npos);
  EXPECT_NE(checkpoint_inspect(folder / "checkpoints").find("param/experts  bf16 3x4x5"),
            std::string::npos);
  const std::string newest = checkpoint_hash_alone(folder / "checkpoints/step-000000020");
  EXPECT_EQ(checkpoint_hash_alone(folder.path()), newest);

  overwrite(folder / "checkpoints/step-000000020/config.toml", "x");
  EXPECT_NE(message_of(ErrorKind::data, [&] { verify_alone(folder.path()); }).find("config.toml"),
            std::string::npos);
  message_of(ErrorKind::data, [&] { checkpoint_hash_alone(folder.path()); });
  EXPECT_NE(checkpoint_hash_alone(folder.path(), /*allow_older=*/true),
            newest);  // the checkpoint before
  overwrite(folder / "checkpoints/step-000000020/manifest.json", "x");
  EXPECT_NE(list_text(list()).find("step-000000020  damaged"), std::string::npos);
  const Json json = list_json(list()).at("checkpoints");
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0].at("step"), 20);
  EXPECT_TRUE(json[0].contains("problem"));
  EXPECT_EQ(json[1].at("shards"), 2);
  EXPECT_TRUE(json[1].at("valid_loss").is_null());
  message_of(ErrorKind::data, [&] { checkpoint_list(folder / "nothing"); });
}

TEST(CheckpointCommands, VerifyChecksFrozenCopiesAndNamesTheGoodCheckpoints) {
  const TempDirectory folder;
  const fs::path run_folder = folder / "run";
  for (const int step : {3, 4})
    save_layout(run_folder / "checkpoints", step, make_logicals(1), 1, 0);
  for (const char* name : {"base", "teacher"})
    save_layout(run_folder / name, 0, make_logicals(2), 1, 0);
  const std::string good = verify_alone(run_folder);
  EXPECT_TRUE(good.starts_with("step-000000004  good, ")) << good;
  EXPECT_NE(good.find("\nbase/step-000000000  good, "), std::string::npos) << good;
  EXPECT_NE(good.find("\nteacher/step-000000000  good, "), std::string::npos) << good;
  EXPECT_EQ(verify_alone(run_folder / "checkpoints").find("base"), std::string::npos);

  overwrite(run_folder / "base/step-000000000/config.toml", "x");
  const Outcome bad = run({"checkpoint", "verify", run_folder.string()});
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.out.find("base/step-000000000 is damaged"), std::string::npos) << bad.out;
  EXPECT_TRUE(bad.out.ends_with("\ngood: step-000000004, step-000000003, teacher/step-000000000"))
      << bad.out;
  EXPECT_EQ(run({"checkpoint", "verify", (run_folder / "checkpoints").string()}).code, 0);
}

TEST(CheckpointCommands, ReshardAndBackIsTheSameState) {
  const TempDirectory folder;
  save_layout(folder / "a", 7, make_logicals(1), 3, 4);
  const std::string a = (folder / "a").string();
  const std::string b = (folder / "b").string();
  const std::string c = (folder / "c").string();

  EXPECT_EQ(run({"checkpoint", "reshard", a, "--ranks", "2", "-o", b}).code, 0);
  overwrite(folder / "layout.json", run({"checkpoint", "inspect", a, "--layout"}).out);
  const Outcome back =
      run({"checkpoint", "reshard", b, "--layout", (folder / "layout.json").string(), "-o", c});

  EXPECT_EQ(back.code, 0) << back.out;
  EXPECT_EQ(run({"checkpoint", "hash", a}).out, run({"checkpoint", "hash", b}).out);
  EXPECT_EQ(run({"checkpoint", "diff", a, c}).out, "the same state\n");
  EXPECT_EQ(run({"checkpoint", "verify", c}).code, 0);
  const Outcome again = run({"checkpoint", "reshard", a, "--ranks", "2", "-o", b});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.out.find("exists already"), std::string::npos) << again.out;
}

TEST(CheckpointCommands, DiffNamesAndExits3) {
  const TempDirectory folder;
  save_layout(folder / "a", 7, make_logicals(1), 1, 0);
  save_layout(folder / "b", 7, make_logicals(2), 1, 0);
  const Outcome diff =
      run({"checkpoint", "diff", (folder / "a").string(), (folder / "b").string()});
  EXPECT_EQ(diff.code, 3);
  EXPECT_NE(diff.out.find("tensor param/model.norm.weight: 7 of 7 elements differ"),
            std::string::npos)
      << diff.out;
}

TEST(CheckpointCommands, PruneSaysWhatItWouldDeleteThenDeletes) {
  const TempDirectory folder;
  const fs::path steps = folder / "run/checkpoints";
  for (const int step : {1, 2, 3, 4}) save_layout(steps, step, make_logicals(1), 1, 0);
  const std::string place = (folder / "run").string();

  const Outcome dry = run({"checkpoint", "prune", place, "--keep-last", "2", "--dry-run"});
  EXPECT_EQ(dry.out, "would delete step-000000002\nwould delete step-000000001\n");
  EXPECT_EQ(list_steps(steps).size(), 4U);
  const Outcome wet = run({"checkpoint", "prune", place, "--keep-last", "2"});
  EXPECT_EQ(wet.out, "deleted step-000000002\ndeleted step-000000001\n");
  EXPECT_EQ(list_steps(steps), (std::vector<std::int64_t>{4, 3}));
  const Outcome none = run({"checkpoint", "prune", place, "--keep-last", "0"});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.out, "--keep-last = 0, must be at least 1");
  EXPECT_EQ(run({"checkpoint", "prune", (steps / "step-000000004").string()}).code, 2);
  EXPECT_FALSE(fs::exists(folder / "run/LOCK"));
}

TEST(CheckpointCommands, ADirectoryInUseIsNotTouchedUnderAnyName) {
  const TempDirectory folder;
  const fs::path steps = folder / "run/checkpoints";
  for (const int step : {1, 2, 3, 4}) save_layout(steps, step, make_logicals(1), 1, 0);
  save_layout(folder / "other", 9, make_logicals(1), 1, 0);
  fs::create_directory_symlink(steps, folder / "link");
  const RunLock lock(folder / "run", {});
  for (const std::string& place : {(folder / "run").string(), steps.string(), steps.string() + "/",
                                   (steps / ".").string(), (folder / "link").string()}) {
    EXPECT_EQ(run({"checkpoint", "prune", place, "--keep-last", "1"}).code, 2) << place;
    EXPECT_EQ(
        run({"checkpoint", "reshard", (folder / "other").string(), "--ranks", "2", "-o", place})
            .code,
        2)
        << place;
  }
  EXPECT_EQ(list_steps(steps).size(), 4U);
}

TEST(CheckpointCommands, ADamagedNewestIsAnErrorUnlessAnOlderOneMayBeTaken) {
  const TwoSteps saved;
  const std::string place = saved.folder.path().string();
  const std::string older = (saved.folder / "step-000000001").string();
  const std::string hash = run({"checkpoint", "hash", older}).out;
  std::string shard = read_file(saved.step / "shard-00001-of-00002.h5");
  shard[shard.size() / 2] ^= 1;
  overwrite(saved.step / "shard-00001-of-00002.h5", shard);

  const std::string out = (saved.folder / "out").string();
  const std::vector<std::vector<std::string>> commands{
      {"checkpoint", "hash", place},
      {"checkpoint", "inspect", place},
      {"checkpoint", "diff", place, older},
      {"checkpoint", "reshard", place, "--ranks", "3", "-o", out}};
  for (std::vector<std::string> words : commands) {
    const Outcome refused = run(words);
    EXPECT_EQ(refused.code, 3) << words[1];
    for (const char* part :
         {"step-000000002", "shard-00001-of-00002.h5", "step-000000001", "--allow-older"})
      EXPECT_NE(refused.out.find(part), std::string::npos) << part << " not in " << refused.out;
    EXPECT_FALSE(fs::exists(out));
    words.emplace_back("--allow-older");
    EXPECT_EQ(run(words).code, 0) << words[1];
  }
  EXPECT_EQ(run({"checkpoint", "hash", place, "--allow-older"}).out, hash);
  EXPECT_EQ(run({"checkpoint", "hash", out}).out, hash);
  EXPECT_EQ(run({"checkpoint", "hash", saved.step.string(), "--allow-older"}).code, 3);
  EXPECT_EQ(run({"checkpoint", "verify", place}).code, 3);
  EXPECT_EQ(run({"checkpoint", "list", place}).code, 0);
}

TEST(CheckpointCommands, ReshardWritesOnlyWhereCheckpointsLie) {
  const TempDirectory folder;
  save_layout(folder / "a", 7, make_logicals(1), 1, 0);
  save_layout(folder / "run/checkpoints", 1, make_logicals(1), 1, 0);
  fs::create_directories(folder / "papers");
  overwrite(folder / "papers/thesis.tex", "x");
  const auto reshard = [&](const std::string& to) {
    return run({"checkpoint", "reshard", (folder / "a").string(), "--ranks", "2", "-o",
                (folder / to).string()});
  };

  const Outcome papers = reshard("papers");
  EXPECT_EQ(papers.code, 2);
  EXPECT_NE(papers.out.find("'thesis.tex'"), std::string::npos) << papers.out;
  EXPECT_EQ(contents(folder / "papers").size(), 1U);
  const Outcome whole_run = reshard("run");
  EXPECT_EQ(whole_run.code, 2);
  EXPECT_TRUE(whole_run.out.ends_with(": give " + (folder / "run/checkpoints").string()))
      << whole_run.out;

  fs::create_directories(folder / "run/checkpoints/damaged-step-000000002");
  overwrite(folder / "run/checkpoints/.nfs01", "x");
  for (const char* to : {"run/checkpoints", "new/folder"}) EXPECT_EQ(reshard(to).code, 0) << to;
}

TEST(CheckpointCommands, WrongArgumentsAreRefusedBeforeAnythingIsWritten) {
  const TempDirectory folder;
  save_layout(folder / "a", 7, make_logicals(1), 1, 0);
  const std::string a = (folder / "a").string();
  const std::string out = (folder / "out").string();
  EXPECT_EQ(run({"checkpoint", "reshard", a, "-o", out}).code, 2);
  EXPECT_EQ(run({"checkpoint", "reshard", a, "-o", out, "--ranks", "0"}).code, 2);
  EXPECT_EQ(run({"checkpoint", "reshard", a, "-o", out, "--ranks", "2", "--layout", "x"}).code, 2);
  EXPECT_EQ(run({"checkpoint", "reshard", a, "-o", out, "--ranks", "100000"}).code, 2);
  EXPECT_EQ(run({"checkpoint", "reshard", a, "-o", out, "--layout", "absent.json"}).code, 3);
  EXPECT_EQ(run({"checkpoint", "hash", out}).code, 3);
  EXPECT_FALSE(fs::exists(out));
  EXPECT_EQ(run({"bench", "checkpoint", "--bytes", "0"}).code, 2);
  EXPECT_EQ(run({"bench", "checkpoint", "--bytes", "10", "--folder", a}).code, 2);
}

TEST(CheckpointCommands, BenchPrintsJson) {
  const TempDirectory folder;
  const Outcome bench = run({"bench", "checkpoint", "--bytes", "3000001", "--repeats", "2",
                             "--folder", (folder / "bench").string(), "--json"});
  ASSERT_EQ(bench.code, 0) << bench.out;
  const Json json = parse_json(bench.out, "bench");
  EXPECT_EQ(json_get<std::uint64_t>(json, "bytes", "bench"), 3'000'001U);
  for (const char* key : {"save_to_raw", "load_to_raw", "save_mb_per_s", "stall_s"})
    EXPECT_GT(json_get<double>(json, key, "bench"), 0) << key;
  // Noise may make this negative.
  const double extra_s = json_get<double>(json, "step_extra_s", "bench");
  EXPECT_TRUE(std::isfinite(extra_s)) << extra_s;
  EXPECT_FALSE(fs::exists(folder / "bench"));
}

/// Each rank has a shard or the whole state: the checkpoint is the same, and the ranks share the
/// writing.
TEST(MeasureCheckpoint, SeveralRanksShareTheWriting) {
  constexpr std::uint64_t kBytes = std::uint64_t{20} << 20;
  for (const bool replicated : {false, true}) {
    const TempDirectory folder;
    std::atomic<std::uint64_t> copied = 0;
    comm::run_ranks(3, [&](comm::Communicator& world) {
      const MeasuredCheckpoint measured = measure_checkpoint(
          folder / "bench",
          {.bytes = kBytes, .repeats = 1, .replicated = replicated, .keep_last = true}, world);
      EXPECT_EQ(measured.ranks, 3);
      EXPECT_EQ(measured.bytes, kBytes);
      EXPECT_EQ(measured.save_s.size(), 1U);
      copied += measured.copy_bytes;
    });
    EXPECT_EQ(copied, kBytes);
    const Checkpoint kept = verify_checkpoint(folder / "bench/checkpoints/step-000000000");
    EXPECT_EQ(kept.manifest().shards.size(), 3U);
  }
}

/// A simulation of failures with Daly's optimum gave the expected interval and useful time: for
/// 1,024 GPUs (49.5 h between failures), 120 s per save and half an hour to restart, 108 min and
/// 95.20 %.
TEST(PlanInterval, AgreesWithASimulation) {
  const IntervalAnswer many = plan_interval({.stall_s = 120, .restart_s = 1800, .devices = 1024});
  EXPECT_NEAR(many.mtbf_s / 3600, 49.5, 0.05);
  EXPECT_NEAR(many.daly_s / 60, 108, 1);
  EXPECT_NEAR(1 - many.waste, 0.9520, 0.002);  // failures during a restart are not in the formula
  const IntervalAnswer few = plan_interval({.stall_s = 5, .restart_s = 600, .devices = 64});
  EXPECT_NEAR(few.daly_s / 60, 89, 1);
  EXPECT_NEAR(1 - few.waste, 0.9981, 0.0002);
}

TEST(PlanInterval, TheOptimumIsAnOptimum) {
  const IntervalAnswer answer = plan_interval({.stall_s = 30, .restart_s = 600, .mtbf_h = 20});
  const auto waste = [&](double interval_s) {
    return 30 / interval_s + (interval_s / 2 + 600) / answer.mtbf_s;
  };
  EXPECT_LT(waste(answer.daly_s), waste(answer.daly_s * 1.5));
  EXPECT_LT(waste(answer.daly_s), waste(answer.daly_s / 1.5));
  EXPECT_NEAR(answer.young_s, std::sqrt(2 * 30 * 20 * 3600.0), 1e-6);
}

TEST(PlanInterval, AnswersInStepsAndRefusesNonsense) {
  const Outcome answer =
      run({"plan-interval", "--stall-s", "5", "--devices", "64", "--step-time-s", "1"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_NE(answer.out.find("--checkpoint.every 53"), std::string::npos) << answer.out;
  EXPECT_EQ(run({"plan-interval"}).code, 2);
  EXPECT_EQ(run({"plan-interval", "--stall-s", "0", "--mtbf-h", "5"}).code, 2);
  EXPECT_EQ(run({"plan-interval", "--stall-s", "1"}).code, 2);
  EXPECT_EQ(run({"plan-interval", "--stall-s", "1", "--mtbf-h", "5", "--devices", "8"}).code, 2);
}

}  // namespace
}  // namespace trireme::checkpoint
