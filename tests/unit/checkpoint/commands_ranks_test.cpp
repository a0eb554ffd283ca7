// Tests the commands that several ranks run together: text, result and exit code are those of one
// rank.
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "bin/trireme/commands.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/agree.hpp"
#include "core/files/json.hpp"
#include "core/process/failpoints.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

constexpr std::array<int, 3> kRanks{1, 2, 3};

/// The results of all ranks of one start.
struct Together {
  std::string out;                    // output of all ranks
  std::vector<std::string> messages;  // the ranks would print these on stderr
  std::set<int> codes;
};

Together run(int ranks, const std::vector<std::string>& args) {
  Together result;
  std::mutex mutex;
  testing::internal::CaptureStdout();
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    std::vector<const char*> argv{"trireme"};
    for (const std::string& arg : args) argv.push_back(arg.c_str());
    config::CommandLine line("trireme", "trains language models",
                             [] { return std::string("test\n"); });
    const WorldSource source = [&]() -> comm::Communicator& { return world; };
    add_checkpoint_commands(line, source);
    int code = 0;
    std::string message;
    try {
      code = line.run(static_cast<int>(argv.size()), argv.data());
    } catch (const comm::PeerFailed& peer) {
      code = peer.code();
    } catch (const comm::AgreedError& error) {  // any other error would leave the peers waiting
      code = exit_code(error.kind());
      message = error.what();
    }
    const std::lock_guard lock(mutex);
    result.codes.insert(code);
    if (!message.empty()) result.messages.push_back(message);
  });
  std::fflush(stdout);
  result.out = testing::internal::GetCapturedStdout();
  return result;
}

/// Runs `args` on 1, 2 and 3 ranks and expects the same text, message and exit code.
Together same_on_all(const std::vector<std::string>& args) {
  Together first;
  for (const int ranks : kRanks) {
    Together one = run(ranks, args);
    EXPECT_EQ(one.codes.size(), 1U) << ranks;
    if (ranks == kRanks[0]) {
      first = one;
    } else {
      EXPECT_EQ(one.out, first.out) << ranks;
      EXPECT_EQ(one.messages, first.messages) << ranks;
      EXPECT_EQ(one.codes, first.codes) << ranks;
    }
  }
  return first;
}

void flip(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] ^= 1;
  overwrite(file, bytes);
}

TEST(SharedCommands, VerifyAndHashSayWhatOneRankSays) {
  const TempDirectory folder;
  for (const int step : {1, 2, 3})
    save_layout(folder.path(), step, make_logicals(static_cast<unsigned>(step)), step + 1, 4);

  const Together verified = same_on_all({"checkpoint", "verify", folder.path().string()});
  EXPECT_EQ(verified.codes, std::set<int>{0});
  EXPECT_NE(verified.out.find("step-000000003  good"), std::string::npos) << verified.out;
  EXPECT_NE(verified.out.find("step-000000001  good"), std::string::npos) << verified.out;
  const Together hashed = same_on_all({"checkpoint", "hash", folder.path().string()});
  EXPECT_EQ(hashed.out.size(), 65U);
}

/// Each rank verifies some of seven shards. A finding of any rank is reported once, in the words of
/// one rank.
TEST(SharedCommands, DamageInAnyShardIsReportedOnce) {
  const TempDirectory folder;
  save_layout(folder.path(), 1, make_logicals(1), 7, 3);
  const fs::path step = folder / "step-000000001";
  for (const auto& [name, content] : contents(step)) {
    flip(step / name);
    const Together found = same_on_all({"checkpoint", "verify", folder.path().string()});
    EXPECT_EQ(found.codes, std::set<int>{3}) << name;
    ASSERT_EQ(found.messages.size(), 1U) << name;
    EXPECT_NE(found.messages[0].find(name), std::string::npos) << found.messages[0];
    overwrite(step / name, content);
  }

  fs::remove(step / "shard-00002-of-00007.h5");
  flip(step / "shard-00005-of-00007.h5");
  overwrite(step / "shard-00007-of-00008.h5", "x");
  const Together all = same_on_all({"checkpoint", "verify", step.string()});
  ASSERT_EQ(all.messages.size(), 1U);
  for (const char* name : {"shard-00002", "shard-00005", "shard-00007-of-00008.h5: not listed"})
    EXPECT_NE(all.messages[0].find(name), std::string::npos) << all.messages[0];
  EXPECT_EQ(same_on_all({"checkpoint", "hash", step.string()}).codes, std::set<int>{3});
}

TEST(SharedCommands, ADamagedNewestIsSkippedOnAllRanks) {
  const TempDirectory folder;
  for (const int step : {1, 2}) save_layout(folder.path(), step, make_logicals(1), 3, 4);
  flip(folder / "step-000000002/shard-00001-of-00003.h5");
  const std::string place = folder.path().string();

  const Together refused = same_on_all({"checkpoint", "hash", place});
  ASSERT_EQ(refused.messages.size(), 1U);
  EXPECT_NE(refused.messages[0].find("--allow-older"), std::string::npos) << refused.messages[0];
  EXPECT_EQ(same_on_all({"checkpoint", "hash", place, "--allow-older"}).out,
            same_on_all({"checkpoint", "hash", place + "/step-000000001"}).out);
}

TEST(SharedCommands, ReshardWritesTheBytesOfOneRank) {
  const TempDirectory folder;
  save_layout(folder / "a", 5, make_logicals(1), 3, 4);
  const std::string from = (folder / "a").string();
  const auto reshard = [&](int ranks, const std::vector<std::string>& how) {
    const std::string to = (folder / formatted("on{}", ranks)).string();
    fs::remove_all(to);
    std::vector<std::string> words{"checkpoint", "reshard", from, "-o", to};
    words.insert(words.end(), how.begin(), how.end());
    const Together done = run(ranks, words);
    EXPECT_EQ(done.codes, std::set<int>{0}) << done.messages[0];
    EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 1) << done.out;
    return fs::path(to) / "step-000000005";
  };

  overwrite(folder / "layout.json", run(1, {"checkpoint", "inspect", from, "--layout"}).out);
  for (const auto& how : std::vector<std::vector<std::string>>{
           {"--ranks", "1"}, {"--ranks", "5"}, {"--layout", (folder / "layout.json").string()}}) {
    const fs::path alone = reshard(1, how);
    for (const int ranks : {2, 3}) EXPECT_EQ(differing(reshard(ranks, how), alone), "") << ranks;
  }
  EXPECT_EQ(
      same_on_all({"checkpoint", "reshard", from, "-o", (folder / "on1").string(), "--ranks", "2"})
          .codes,
      std::set<int>{2});  // exists already
  EXPECT_EQ(same_on_all({"checkpoint", "reshard", from, "-o", from, "--layout", "absent"}).codes,
            std::set<int>{3});
}

TEST(SharedCommands, ARankThatFailsEndsAllWithOneMessageAndLeavesNothing) {
  const TempDirectory folder;
  save_layout(folder / "a", 5, make_logicals(1), 3, 4);
  ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
  for (const int ranks : kRanks) {
    ::setenv("TRIREME_FAULT", "checkpoint.shard.skeleton:0:3:enospc", 1);
    failpoints_init(0);
    const Together failed = run(ranks, {"checkpoint", "reshard", (folder / "a").string(), "-o",
                                        (folder / "b").string(), "--ranks", "6"});
    EXPECT_EQ(failed.codes, std::set<int>{4}) << ranks;
    EXPECT_EQ(failed.messages.size(), 1U) << ranks;
    EXPECT_EQ(failed.out, "");
    EXPECT_TRUE(list_directory(folder / "b").empty()) << ranks;
  }
  ::unsetenv("TRIREME_FAULT");
  failpoints_init(0);
}

TEST(SharedCommands, BenchSpeaksOnce) {
  const TempDirectory folder;
  const Together bench = run(3, {"bench", "checkpoint", "--bytes", "3000001", "--repeats", "1",
                                 "--folder", (folder / "bench").string(), "--json"});
  EXPECT_EQ(bench.codes, std::set<int>{0});
  EXPECT_EQ(parse_json(bench.out, "one object").at("ranks"), 3);
  const Together refused = same_on_all({"bench", "checkpoint", "--bytes", "0"});
  EXPECT_EQ(refused.codes, std::set<int>{2});
  EXPECT_EQ(refused.messages.size(), 1U);
}

}  // namespace
}  // namespace trireme::checkpoint
