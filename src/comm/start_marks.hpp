#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "comm/launchers.hpp"

namespace trireme {

/// The file that one rank has written about its start.
struct StartMark {
  std::string node;
  int pid = 0;
  double behind_s = 0;  // age of its last sign of life, counted from the newest one of all ranks
};

/// The marks of one start: a file a rank in a directory that all nodes share, so that a rank that
/// waits for MPI can tell which other ranks have begun. No function throws: where the directory
/// cannot be written there are no marks.
class StartMarks {
 public:
  /// `directory`: of the marks of all starts of a run; "": no marks. `variables` tell one start from
  /// another.
  StartMarks(std::filesystem::path directory, const LauncherVariables& variables, int rank);

  /// Makes this rank's mark. Returns false if that was not possible.
  bool put(const std::string& node, int pid) noexcept;

  /// Gives this rank's mark the present time.
  void refresh() const noexcept;

  /// Returns true on the first rank that calls it, which then reports for all.
  [[nodiscard]] bool claim_report() const noexcept;

  /// Returns the marks of all ranks.
  [[nodiscard]] std::map<int, StartMark> read() const noexcept;

  /// The start is done: removes this rank's mark, on rank 0 what earlier starts have left, and
  /// directories that were made for the marks and are empty.
  void remove() const noexcept;

 private:
  [[nodiscard]] std::filesystem::path own() const;

  std::filesystem::path directory_;
  std::filesystem::path start_;  // the marks of this start
  std::filesystem::path made_;   // the topmost directory that put() made; "": none
  int rank_;
};

}  // namespace trireme
