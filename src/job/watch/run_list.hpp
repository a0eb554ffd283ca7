#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "job/watch/run_view.hpp"

namespace trireme::job {

/// A run that list_runs() found.
struct ListedRun {
  std::filesystem::path directory;
  RunView view;       // state "unreadable" if `error` is not empty
  std::string error;  // why the run directory could not be read
};

/// Finds the run directories among `directories` and in their subdirectories (at most three levels),
/// and returns them sorted by path. The subdirectories of a run are not searched. `ask` asks the
/// scheduler about runs that are not done; if it is empty, only the directories are read. Throws
/// Error(data) if one of `directories` does not exist or cannot be read.
std::vector<ListedRun> list_runs(const std::vector<std::string>& directories, double now_s,
                                 const scheduler::SchedulerQuery& ask = {});

/// Returns a table with one line per run, and the errors below the table.
std::string to_table(const std::vector<ListedRun>& runs);

/// Returns {"runs": [{"run": path, ...}]} with the members of to_json(RunView), and "error"
/// for a run that could not be read.
Json to_json(const std::vector<ListedRun>& runs);

}  // namespace trireme::job
