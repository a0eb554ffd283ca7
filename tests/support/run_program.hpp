#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "support/process.hpp"
#include "unit/data/small_set.hpp"

/// Runs the `trireme` program on a small data set, alone or under mpirun, and reads the files of
/// its runs.
namespace trireme::testing {

/// The content of metrics.jsonl: the last line of a step counts.
struct RunMetrics {
  std::vector<Json> lines;
  std::map<std::int64_t, Json> steps;
  std::vector<std::int64_t> resumed_from;

  [[nodiscard]] std::vector<double> losses() const;
};

/// Options for the start of one training run.
struct Start {
  int ranks = 1;
  std::string fault = {};  // TRIREME_FAULT
  std::map<std::string, std::string> environment = {};
  bool keep_rank_codes = false;  // rank_code() returns each rank's own exit code
};

using Arguments = std::vector<std::string>;

class RunProgram : public ::testing::Test {
 protected:
  /// Makes the data set once for all tests of a program.
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  [[nodiscard]] static std::filesystem::path set() { return folder_->path() / "set"; }

  [[nodiscard]] static std::filesystem::path path(const std::string& name) {
    return folder_->path() / name;
  }

  /// Runs `trireme pretrain` with a tiny model: 2 layers, width 32, global batch 12. `more` comes
  /// last on the command line.
  static std::unique_ptr<Process> start(const std::string& run, const Arguments& more,
                                        const Start& how = {});
  static Exit pretrain(const std::string& run, const Arguments& more, const Start& how = {});
  /// Runs any command (program first) on `ranks` ranks of a real mpirun.
  static Exit mpirun(int ranks, const Arguments& command,
                     const std::map<std::string, std::string>& environment = {});
  /// Runs another `trireme` command.
  static Exit trireme(const Arguments& arguments, const Start& how = {});

  static RunMetrics metrics(const std::string& run);
  /// Returns the hash of the newest checkpoint. Returns "" and fails the test if there is no
  /// checkpoint.
  static std::string hash(const std::string& run);
  /// Returns the steps of the committed checkpoints, newest first.
  static std::vector<std::int64_t> saved_steps(const std::string& run);
  static Json status(const std::string& run);
  /// Returns the exit code of one rank of the last run with keep_rank_codes; -1 if the rank wrote
  /// none.
  static int rank_code(int rank);
  /// Returns the different exit codes that ranks of the last run with keep_rank_codes wrote. A rank
  /// may have written none: mpirun kills all ranks that have not ended two seconds after the first
  /// MPI_Abort.
  static std::set<int> rank_codes(int num_ranks);

  static std::size_t count(const std::string& text, const std::string& part);
  /// Expects this exit code and one message that contains all of `words`.
  static void expect_refused(const Exit& exit, int code, const std::vector<std::string>& words);
  /// Flips one byte in the middle of a checkpoint's first shard.
  static void damage(const std::filesystem::path& step);

  static constexpr double kLimit_s = 100;

 private:
  static std::unique_ptr<TestDirectory> folder_;
};

}  // namespace trireme::testing
