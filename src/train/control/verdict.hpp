#pragma once
#include <cstdint>
#include <string>

#include "train/state/run_folder.hpp"

namespace trireme {

/// How one rank's part of a run ended when it did not end well: `verdicts/rank-NNNNN.json`. A rank
/// that was killed leaves none; its peers' verdicts name it.
struct Verdict {
  int rank = 0;
  std::string host;
  std::string kind;  // "error": thrown here; "peer": another rank failed, see `message`; "hang"
  int exit_code = 0;
  std::int64_t step = 0;  // done
  std::string message;
};

/// Publishes the verdict with the time of day. Never throws: this process is on its way out.
void write_verdict(const RunFolder& folder, const Verdict& verdict) noexcept;

/// Rank 0 at the start: those of the run's last part go.
void clear_verdicts(const RunFolder& folder);

}  // namespace trireme
