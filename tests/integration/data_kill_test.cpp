/// Runs the program itself, kills it at every failpoint of its protocol and runs it again: the
/// output has the same bytes as without a kill. Options from a file give the same bytes as options
/// on the command line.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "unit/data_prep/small_corpus.hpp"

namespace trireme {
namespace {

using testing::files_below;
using testing::TestDirectory;

class DataProgram : public ::testing::Test {
 protected:
  DataProgram() {
    data_prep::write_synth(corpus_, 600, 5, false);
    tokenizer_ = testing::tokenizer_of(path_, corpus_);
  }

  /// Returns the exit code, or 128 + the signal.
  int run(const std::string& arguments, const std::string& fault = "") const {
    const std::string environment =
        fault.empty() ? "" : "TRIREME_ALLOW_FAULTS=1 TRIREME_FAULT=" + fault + " ";
    const std::string command = environment + "exec " TRIREME_DATA " " + arguments + " > " +
                                (path_ / "out").string() + " 2> " + (path_ / "err").string();
    const int status = std::system(command.c_str());
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  std::string pack_arguments(const std::string& output) const {
    return "pack --kind pretrain --seq-len 64 --unit-bytes 20000 --threads 2 --tokenizer " +
           tokenizer_ + " --input " + corpus_ + " --output " + (path_ / output).string();
  }

  TestDirectory folder_{"data_program"};
  std::filesystem::path path_ = folder_.path();
  std::string corpus_ = (path_ / "corpus.jsonl").string();
  std::string tokenizer_;
};

TEST_F(DataProgram, GivesTheSameBytesAfterAKillAtEveryPoint) {
  ASSERT_EQ(run(pack_arguments("whole")), 0) << read_file(path_ / "err");
  const auto whole = files_below(path_ / "whole");
  ASSERT_GT(whole.size(), 6U);
  const std::string points[] = {"pack.unit_tokenized:0:1",  "pack.unit_tokenized:0:3",
                                "shard.before_sync:0:2",    "shard.before_publish:0:1",
                                "shard.before_publish:0:4", "shard.published:0:1",
                                "shard.published:0:3",      "pack.before_manifest:0:1"};
  for (const std::string& point : points) {
    ASSERT_EQ(run(pack_arguments("killed"), point + ":kill9"), 137) << point;
    ASSERT_FALSE(std::filesystem::exists(path_ / "killed" / "manifest.json"));
    ASSERT_EQ(run("verify " + (path_ / "killed").string()), 3) << point;

    ASSERT_EQ(run(pack_arguments("killed")), 0) << point << ": " << read_file(path_ / "err");

    ASSERT_EQ(files_below(path_ / "killed"), whole) << point;
    std::filesystem::remove_all(path_ / "killed");
  }
}

TEST_F(DataProgram, ARunKilledAgainAndAgainLosesOnePartitionAtMost) {
  ASSERT_EQ(run(pack_arguments("whole")), 0);
  int kills = 0;
  while (run(pack_arguments("killed"), "shard.published:0:1:kill9") == 137) ++kills;

  EXPECT_EQ(files_below(path_ / "killed"), files_below(path_ / "whole"));
  // Each run writes one shard.
  EXPECT_EQ(kills, static_cast<int>(files_below(path_ / "whole").size()) - 3);
}

TEST_F(DataProgram, AFullDiskLeavesNothingBroken) {
  ASSERT_EQ(run(pack_arguments("set"), "shard.before_sync:0:2:enospc"), 4);
  EXPECT_NE(read_file(path_ / "err").find("trireme-data: error:"), std::string::npos);
  for (const auto& entry : files_below(path_ / "set"))
    EXPECT_EQ(entry.first.find(".tmp."), std::string::npos) << entry.first;

  EXPECT_EQ(run(pack_arguments("set")), 0);
}

TEST_F(DataProgram, KeepsItsContract) {
  ASSERT_EQ(run(pack_arguments("set")), 0);
  const std::string set = (path_ / "set").string();
  EXPECT_EQ(run("verify " + set), 0);
  EXPECT_EQ(run("inspect " + set + " --json"), 0);
  EXPECT_NE(read_file(path_ / "out").find("\"target_tokens\""), std::string::npos);
  EXPECT_EQ(run("verify " + set + "x"), 3);
  EXPECT_EQ(run("--help"), 0);
  EXPECT_EQ(run("--version"), 0);
  EXPECT_EQ(run("pakc"), 2);
  EXPECT_NE(read_file(path_ / "err").find("did you mean 'pack'"), std::string::npos);
  EXPECT_EQ(run("pack --kind dpo --tokenizer " + tokenizer_ + " --input " + corpus_ + " --output " +
                set + "2"),
            2);
  EXPECT_EQ(run("tokenizer encode --tokenizer " + tokenizer_ + " --input " + corpus_ +
                " --output " + set + ".ids"),
            0);
  EXPECT_EQ(run("tokenizer decode --tokenizer " + tokenizer_ + " --input " + set +
                ".ids --output " + set + ".text"),
            0);
  EXPECT_EQ(read_file(set + ".text"), read_file(corpus_));

  std::filesystem::resize_file(set + "/shard-00001.h5", 1000);
  EXPECT_EQ(run("verify " + set), 3);
  EXPECT_NE(read_file(path_ / "err").find("shard-00001.h5"), std::string::npos);
}

TEST_F(DataProgram, PacksFromAFileAsFromOptionsWhichWin) {
  ASSERT_EQ(run(pack_arguments("options")), 0) << read_file(path_ / "err");
  const std::string toml = (path_ / "pack.toml").string();
  testing::write_text(toml, formatted("[pack]\nkind = \"pretrain\"\nseq_len = 32\nunit_bytes = "
                                      "20000\nthreads = 2\ntokenizer = \"{}\"\ninput = [\"{}\"]\n",
                                      tokenizer_, corpus_));
  const std::string output = (path_ / "file").string();

  ASSERT_EQ(run("pack --config " + toml + " --seq-len 64 --output " + output), 0)
      << read_file(path_ / "err");
  EXPECT_EQ(files_below(path_ / "file"), files_below(path_ / "options"));

  testing::write_text(toml, "[pack]\nseqlen = 32\nkind = \"images\"\n");
  EXPECT_EQ(run("pack --config " + toml + " --tokenizer " + tokenizer_ + " --input " + corpus_ +
                " --output " + (path_ / "none").string()),
            2);
  const std::string said = read_file(path_ / "err");
  for (const char* part :
       {"pack.toml:2:1: unknown key 'pack.seqlen'; did you mean 'pack.seq_len'?",
        "--kind images, must be one of pretrain, sft, dpo, kto, rl (", "pack.toml:3)"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " not in " << said;
  EXPECT_FALSE(std::filesystem::exists(path_ / "none"));
}

}  // namespace
}  // namespace trireme
