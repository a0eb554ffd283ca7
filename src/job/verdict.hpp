#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "job/place.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// The failure report of one rank: `verdicts/rank-NNNNN.json`. Each rank writes its own file; the
/// writer of the event log collects them (journal.hpp). A rank that was killed leaves none, but the
/// reports of its peers name it.
struct Verdict {
  int rank = 0;
  std::string host;
  std::string
      kind;  // "error": this rank threw it; "hang": no progress; "peer": another rank failed
  int exit_code = 0;
  std::int64_t step = 0;  // last completed step
  std::string message;

  /// The rank that failed, for kind "peer" if it is known.
  struct Lost {
    int rank = -1;  // -1: unknown
    std::string host;
    std::string kind;  // "killed": ended without a report; "hang"; "error"
  };

  Lost lost{};
  JobPlace place{};  // identifies the attempt
};

/// Writes the report with the current time and the attempt of this process. Never throws, because
/// this process is about to exit.
void write_verdict(const RunFolder& folder, const Verdict& verdict) noexcept;

/// Returns the reports in the directory, sorted by rank. Skips files that are not reports.
std::vector<Verdict> read_verdicts(const RunFolder& folder);

/// Deletes the reports of the last attempt. Rank 0 calls it at the start.
void clear_verdicts(const RunFolder& folder);

/// These functions convert an attempt id and a report (without its attempt id) to members of a JSON
/// object and back. Reading throws Error(data) naming `where`.
void put_place(Json& object, const JobPlace& place);
JobPlace take_place(const Json& object, const std::string& where);
void put_verdict(Json& object, const Verdict& verdict);
Verdict take_verdict(const Json& object, const std::string& where);

}  // namespace trireme
