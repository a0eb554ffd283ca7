#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/task/task.hpp"

namespace trireme::testing {

/// Keys and values over a tiny run: {"checkpoint.every", "2"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// A training run whose ranks are forked processes of this program, so that a start costs tens of
/// milliseconds instead of a second: LibTorch is loaded once. Everything else is as in `trireme
/// pretrain` under mpirun: pretrain(), heartbeat, failpoints, run folder; kill -9 kills one rank.
struct ForkedRun {
  int ranks = 2;
  std::filesystem::path set;     // token set
  std::filesystem::path folder;  // run folder; the ranks' stderr goes to <folder>.log
  Settings settings;
  std::string fault;  // TRIREME_FAULT, or ""
  std::unique_ptr<Task> (*make_task)() = make_pretrain;
};

struct RanksEnd {
  std::vector<int> codes;    // exit code, or 128 + signal
  double after_first_s = 0;  // from the first end to the last
  bool timed_out = false;    // the rest was killed
  std::string log;
};

/// A small token set in `folder`, packed for 32 tokens by the program itself; its path.
std::filesystem::path make_set(const std::filesystem::path& folder);

/// Call once before the first run, on a process without threads: what all ranks inherit.
void prepare_forks();

RanksEnd run_forked(const ForkedRun& run, double limit_s);

}  // namespace trireme::testing
