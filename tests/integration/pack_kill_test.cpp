/// Runs `pack` under mpirun, kills it at random moments and starts it again; stops it by signals;
/// fills its disk.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <regex>

#include "support/process.hpp"
#include "unit/data_prep/compress.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme {
namespace {

using namespace testing;

constexpr double kLimit_s = 120;

class PackProgram : public ::testing::Test {
 protected:
  PackProgram() {
    std::filesystem::create_directory(path_ / "in");
    const std::string corpus = (path_ / "corpus.jsonl").string();
    data_prep::write_synth(corpus, 9000, 21, false);
    tokenizer_ = tokenizer_of(path_, corpus);
    const std::string text = read_file(corpus);
    write_text(path_ / "in" / "a.jsonl", text);
    write_text(path_ / "in" / "b.jsonl.gz", gzip(text));
    write_text(path_ / "in" / "c.jsonl.zst",
               in_pieces(text, 300'000, [](auto part) { return zstd(part); }));
  }

  std::vector<std::string> command(int ranks, const std::string& output) const {
    std::vector<std::string> words;
    if (ranks > 1) {
      words = {TRIREME_MPIEXEC,      "--oversubscribe", "--bind-to", "none", "-n",
               std::to_string(ranks)};
    }
    const std::vector<std::string> pack{TRIREME_DATA,   "pack",
                                        "--tokenizer",  tokenizer_,
                                        "--input",      (path_ / "in").string(),
                                        "--output",     (path_ / output).string(),
                                        "--seq-len",    "64",
                                        "--unit-bytes", "100000",
                                        "--threads",    "1",
                                        "--progress",   "none"};
    words.insert(words.end(), pack.begin(), pack.end());
    return words;
  }

  Process start(int ranks, const std::string& output, const std::string& fault = "") const {
    std::map<std::string, std::string> environment{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                   {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    if (!fault.empty()) environment = {{"TRIREME_ALLOW_FAULTS", "1"}, {"TRIREME_FAULT", fault}};
    return {command(ranks, output), environment, path_ / "log"};
  }

  /// Returns the number of files in the output directory with names that begin with `prefix`.
  std::size_t count(const std::string& output, const std::string& prefix) const {
    std::size_t found = 0;
    if (!std::filesystem::exists(path_ / output)) return 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / output))
      found += entry.path().filename().string().starts_with(prefix) ? 1 : 0;
    return found;
  }

  using Markers = std::map<std::string, std::filesystem::file_time_type>;

  /// Returns the markers of partitions that killed packs have begun and not finished.
  Markers markers(const std::string& output) const {
    Markers found;
    if (!std::filesystem::exists(path_ / output)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / output)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".tmp.unit-")) found[name] = entry.last_write_time();
    }
    return found;
  }

  TestDirectory folder_{"pack_program"};
  std::filesystem::path path_ = folder_.path();
  std::string tokenizer_;
};

/// Kills all ranks with mpirun at once, or one rank, after which mpirun ends the others.
void kill_job(const Process& job, int ranks, bool all, std::mt19937& random) {
  std::vector<pid_t> pids;
  for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
    const pid_t pid = rank_pid(job.pid(), rank);
    if (pid > 1) pids.push_back(pid);
  }
  if (!all && !pids.empty()) {
    signal_process(pids[random() % pids.size()], SIGKILL);
    return;
  }
  for (const pid_t pid : pids) signal_process(pid, SIGKILL);
  job.signal(SIGKILL);
}

int kills_asked_for() {
  const char* asked = std::getenv("TRIREME_TEST_KILLS");
  return asked == nullptr ? 4 : std::atoi(asked);
}

TEST_F(PackProgram, GivesTheSameBytesAfterRandomKillsAndRedoesOnePartitionARankAtMost) {
  Process alone = start(1, "whole");
  const Exit whole_exit = alone.wait(kLimit_s);
  ASSERT_EQ(whole_exit.code, 0) << whole_exit.err;
  const auto whole = files_below(path_ / "whole");
  const std::size_t partitions = count("whole", "shard-");
  ASSERT_GT(partitions, 30U);

  std::mt19937 random(5);
  const int ranks_of_kill[] = {2, 4, 1, 3};
  std::size_t redone = 0;
  std::size_t most = 0;
  std::size_t sets = 0;
  int kills = 0;
  double latest_s = whole_exit.seconds;  // fewer if runs end before their kill
  while (kills < kills_asked_for()) {
    const int ranks = ranks_of_kill[kills % 4];
    const std::size_t before = count("killed", "shard-");
    const Markers old = markers("killed");
    Process job = start(ranks, "killed");
    // Half of the kills come at any moment, including the start of MPI; the other half while shards
    // appear.
    if (random() % 2 == 0) {
      wait_for([&] { return !job.running() || count("killed", "shard-") > before; }, kLimit_s);
    }
    const double moment_s = latest_s * static_cast<double>(random() % 1000) / 1000.0;
    wait_for([&] { return !job.running(); }, moment_s);
    const bool killed = job.running();
    if (killed) {
      kill_job(job, ranks, random() % 2 == 0, random);
      // mpirun itself may hang if a rank dies while MPI starts.
      if (!wait_for([&] { return !job.running(); }, 10)) kill_job(job, ranks, true, random);
    }
    const Exit exit = job.wait(kLimit_s);
    ASSERT_FALSE(exit.timed_out);
    if (!killed) {
      ASSERT_EQ(exit.code, 0) << exit.err;
      ASSERT_EQ(files_below(path_ / "killed"), whole);
      std::filesystem::remove_all(path_ / "killed");
      ++sets;
      latest_s = std::max(0.2, latest_s * 0.8);
      continue;
    }
    ++kills;
    // Ranks that have lost mpirun may still be exiting. The next pack must not meet them.
    wait_for([&] { return rank_pid(job.pid(), 0) < 0; }, 5);
    // Count the markers of this job only: a job that was killed while MPI started leaves old ones.
    std::size_t begun = 0;
    for (const auto& marker : markers("killed"))
      begun += std::find(old.begin(), old.end(), marker) == old.end() ? 1 : 0;
    ASSERT_LE(begun, static_cast<std::size_t>(ranks));
    ASSERT_GE(count("killed", "shard-"), before);
    redone += begun;
    most = std::max(most, begun);
  }
  Process last = start(2, "killed");
  ASSERT_EQ(last.wait(kLimit_s).code, 0);
  EXPECT_EQ(files_below(path_ / "killed"), whole);
  std::printf("%d kills, %zu sets of %zu shards: %zu begun and not finished, at most %zu at once\n",
              kills, sets + 1, partitions, redone, most);
}

TEST_F(PackProgram, SaysWhatAKillLeft) {
  Process killed = start(1, "set", "pack.unit_tokenized:0:4:kill9");
  ASSERT_EQ(killed.wait(kLimit_s).code, 137);

  Process again = start(1, "set");
  const Exit exit = again.wait(kLimit_s);

  EXPECT_EQ(exit.code, 0);
  EXPECT_TRUE(std::regex_search(exit.err, std::regex("3 of [0-9]+ shards are kept; 1 shard")))
      << exit.err;
}

TEST_F(PackProgram, StopsOnASignalAndContinuesLater) {
  Process whole = start(1, "whole");
  ASSERT_EQ(whole.wait(kLimit_s).code, 0);
  const auto files = files_below(path_ / "whole");
  for (const int ranks : {1, 3}) {
    for (const int number : {SIGUSR1, SIGTERM, SIGUSR2}) {
      if (ranks > 1 && number == SIGTERM) continue;  // mpirun would end the job itself
      Process job = start(ranks, "stopped");
      const auto some_shards = [&] { return count("stopped", "shard-") > 2 || !job.running(); };
      ASSERT_TRUE(wait_for(some_shards, kLimit_s));
      if (ranks == 1) {
        job.signal(number);
      } else {
        signal_process(rank_pid(job.pid(), 1), number);  // the signal of one rank stops all ranks
      }
      const Exit exit = job.wait(kLimit_s);
      ASSERT_EQ(exit.code, 75) << exit.err;
      EXPECT_NE(exit.err.find("stopped on request"), std::string::npos) << exit.err;
      EXPECT_EQ(count("stopped", ".tmp."), 0U);
      EXPECT_EQ(count("stopped", "manifest"), 0U);

      Process rest = start(ranks, "stopped");
      ASSERT_EQ(rest.wait(kLimit_s).code, 0);
      EXPECT_EQ(files_below(path_ / "stopped"), files);
      std::filesystem::remove_all(path_ / "stopped");
    }
  }
}

TEST_F(PackProgram, AnOutputThatCannotBeMadeIsSaidAtOnce) {
  write_text(path_ / "file", "not a folder");
  Process job = start(1, "file/set");
  const Exit exit = job.wait(kLimit_s);

  EXPECT_EQ(exit.code, 2) << exit.err;
  EXPECT_NE(exit.err.find("file/set"), std::string::npos) << exit.err;
}

}  // namespace
}  // namespace trireme
