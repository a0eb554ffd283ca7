#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "job/place.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// How one rank's part of a run ended when it did not end well: `verdicts/rank-NNNNN.json`, a file
/// that each rank writes for itself until the journal's writer takes them in (journal.hpp). A rank
/// that was killed leaves none; its peers' verdicts name it.
struct Verdict {
  int rank = 0;
  std::string host;
  std::string kind;  // "error": thrown here; "hang": it stood still; "peer": another rank failed
  int exit_code = 0;
  std::int64_t step = 0;  // done
  std::string message;

  /// Of kind "peer", where it is known: who failed, and as what.
  struct Lost {
    int rank = -1;  // -1: not known
    std::string host;
    std::string kind;  // "killed": gone without a word; "hang"; "error"
  };

  Lost lost{};
  JobPlace place{};  // of the leg
};

/// Publishes the verdict with the time of day and the place of this process's leg. Never throws: this process is on its way out.
void write_verdict(const RunFolder& folder, const Verdict& verdict) noexcept;

/// Those that lie in the folder, by rank. What is no verdict is passed over.
std::vector<Verdict> read_verdicts(const RunFolder& folder);

/// Rank 0 at the start: those of the run's last part go.
void clear_verdicts(const RunFolder& folder);

/// Adds the members of a verdict, its place aside, to an object; and the other way: throws
/// Error(data) naming `where`.
void put_place(Json& object, const JobPlace& place);
JobPlace take_place(const Json& object, const std::string& where);
void put_verdict(Json& object, const Verdict& verdict);
Verdict take_verdict(const Json& object, const std::string& where);

}  // namespace trireme
