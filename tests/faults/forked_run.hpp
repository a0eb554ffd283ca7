#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/task/task.hpp"

namespace trireme::testing {

/// Keys and values that override those of a tiny run: {"checkpoint.every", "2"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// A training run with ranks that are forked processes of this program. LibTorch is loaded once, so
/// a start takes tens of milliseconds instead of a second. Everything else works like in `trireme
/// pretrain` under mpirun: pretrain(), heartbeat, failpoints, run directory. kill -9 kills one
/// rank.
struct ForkedRun {
  int ranks = 2;
  std::filesystem::path set;     // data set
  std::filesystem::path folder;  // run directory; the stderr of the ranks goes to <directory>.log
  Settings settings;
  std::string fault;  // TRIREME_FAULT; "" for none
  std::unique_ptr<train::Task> (*make_task)() = train::task_rows().front().make;  // pretrain
};

struct RanksEnd {
  std::vector<int> codes;    // exit code, or 128 + signal
  double after_first_s = 0;  // time from the first exit to the last
  bool timed_out = false;    // the limit was reached and the remaining ranks were killed
  std::string log;
};

/// Packs a small data set for 32 tokens in `folder` and returns its path.
std::filesystem::path make_set(const std::filesystem::path& folder);

/// Initializes everything that all ranks inherit. Call once before the first run, from a process
/// without threads.
void prepare_forks();

RanksEnd run_forked(const ForkedRun& run, double limit_s);

}  // namespace trireme::testing
