#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "comm/launchers.hpp"

namespace trireme::comm {

/// The file in which one rank records its start.
struct StartMark {
  std::string node;
  int pid = 0;
  // time between the last update of this mark and the newest update of all marks
  double behind_s = 0;
};

/// The marks of one start: one file for each rank in a directory that all nodes share. A rank that
/// waits for MPI can see which other ranks have started. No function throws; if the directory is
/// not writable, there are no marks.
class StartMarks {
 public:
  /// `directory` contains the marks of all starts of a run; "" means that no marks are written.
  /// `variables` distinguish this start from other starts of the run.
  StartMarks(std::filesystem::path directory, const LauncherVariables& variables, int rank);

  /// Creates this rank's mark. Returns false if that fails.
  bool put(const std::string& node, int pid) noexcept;

  /// Updates the time of this rank's mark.
  void refresh() const noexcept;

  /// Returns true only on the first rank that calls it; this rank writes the report for all ranks.
  [[nodiscard]] bool claim_report() const noexcept;

  /// Returns the marks of all ranks.
  [[nodiscard]] std::map<int, StartMark> read() const noexcept;

  /// Removes this rank's mark after the start. Rank 0 also removes the marks of earlier starts and
  /// the empty directories that were created for marks.
  void remove() const noexcept;

 private:
  [[nodiscard]] std::filesystem::path own() const;

  std::filesystem::path directory_;
  std::filesystem::path start_;  // the directory of this start's marks
  std::filesystem::path made_;   // the topmost directory that put() created; "": none
  int rank_;
};

}  // namespace trireme::comm
