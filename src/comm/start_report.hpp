#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/start_marks.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::comm {

/// Everything that a rank knows about the start when the start takes too long.
struct StartView {
  int rank = 0;
  int size = 1;
  std::string node;
  double limit_s = 0;
  // a rank counts as silent if its mark is older than the newest mark by more than this time
  double silent_s = 0;
  std::map<int, StartMark> marks;          // ranks that have started; empty: not known
  std::vector<scheduler::StepNode> nodes;  // nodes of the step; empty: not known
};

/// The report of a start that took too long.
struct StartFailure {
  std::string message;
  int rank = 0;  // the reporting rank
  std::string node;
  int missing_rank = -1;  // the first missing rank; -1: not known
  std::string missing_node;
};

/// Builds the report with the missing ranks and nodes.
StartFailure report_start(const StartView& view);

/// Formats increasing numbers as "0, 3-5, 8". Writes at most 20 ranges and then the number of
/// remaining ones.
std::string ranges_text(const std::vector<int>& numbers);

}  // namespace trireme::comm
