#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/start_marks.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {

/// The facts that a rank knows when its start takes too long.
struct StartView {
  int rank = 0;
  int size = 1;
  std::string node;
  double limit_s = 0;
  double silent_s = 0;  // a rank whose mark is so much older than the newest one is silent
  std::map<int, StartMark> marks;  // of the ranks that have begun; empty: not known
  std::vector<StepNode> nodes;     // of the step; empty: not known
};

/// A start that took too long.
struct StartFailure {
  std::string message;
  int rank = 0;  // that reports
  std::string node;
  int missing_rank = -1;  // the first one; -1: not known
  std::string missing_node;
};

/// Names the ranks and nodes that are missing.
StartFailure report_start(const StartView& view);

/// "0, 3-5, 8" of increasing numbers; after 20 parts only how many more there are.
std::string ranges_text(const std::vector<int>& numbers);

}  // namespace trireme
