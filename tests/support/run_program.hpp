#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "support/process.hpp"
#include "unit/data/small_set.hpp"

/// The `trireme` program on a small token set, alone or under mpirun, and what its runs leave.
namespace trireme::testing {

/// metrics.jsonl as a reader sees it: the last line of a step counts.
struct RunMetrics {
  std::vector<Json> lines;
  std::map<std::int64_t, Json> steps;
  std::vector<std::int64_t> resumed_from;

  [[nodiscard]] std::vector<double> losses() const;
};

/// How to start one training run.
struct Start {
  int ranks = 1;
  std::string fault = {};  // TRIREME_FAULT
  std::map<std::string, std::string> environment = {};
  bool keep_rank_codes = false;  // rank_code() tells each rank's own exit code
};

using Arguments = std::vector<std::string>;

class RunProgram : public ::testing::Test {
 protected:
  /// The set is made once for all tests of a program.
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  [[nodiscard]] static std::filesystem::path set() { return folder_->path() / "set"; }

  [[nodiscard]] static std::filesystem::path path(const std::string& name) {
    return folder_->path() / name;
  }

  /// `trireme pretrain` with a tiny model: 2 layers, width 32, global batch 12. `more` comes last
  /// on the command line.
  static std::unique_ptr<Process> start(const std::string& run, const Arguments& more,
                                        const Start& how = {});
  static Exit pretrain(const std::string& run, const Arguments& more, const Start& how = {});
  /// Any command, program first, on `ranks` ranks of a real mpirun.
  static Exit mpirun(int ranks, const Arguments& command,
                     const std::map<std::string, std::string>& environment = {});
  /// Another `trireme` command.
  static Exit trireme(const Arguments& arguments, const Start& how = {});

  static RunMetrics metrics(const std::string& run);
  /// The hash of the newest checkpoint; "" and a failed test when there is none.
  static std::string hash(const std::string& run);
  /// Steps of the committed checkpoints, newest first.
  static std::vector<std::int64_t> saved_steps(const std::string& run);
  static Json status(const std::string& run);
  /// The exit code of one rank, of the run started last with keep_rank_codes; -1: none was left.
  static int rank_code(int rank);

  static std::size_t count(const std::string& text, const std::string& part);
  /// One message that has all of `words`, and this code.
  static void expect_refused(const Exit& exit, int code, const std::vector<std::string>& words);
  /// Flips one byte in the middle of a checkpoint's first shard.
  static void damage(const std::filesystem::path& step);

  static constexpr double kLimit_s = 100;

 private:
  static std::unique_ptr<TemporaryFolder> folder_;
};

}  // namespace trireme::testing
