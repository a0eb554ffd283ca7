#pragma once
#include <string>
#include <vector>

#include "job/doctor/rank_facts.hpp"

namespace trireme::job {

/// One problem or possible problem of the environment.
struct Finding {
  enum class Severity { note, warning, error };

  std::string id;  // "gpu-absent"
  Severity severity = Severity::warning;
  std::string where;  // "ranks 2, 3 (host n2)"
  std::string what;
  std::string advice;                // action for the user
  std::vector<std::string> hosts{};  // affected hosts; empty: all

  /// Returns "where: what; advice".
  [[nodiscard]] std::string line() const;
};

const char* severity_name(Finding::Severity severity);

/// Returns the problems that follow from the facts of all ranks. `ranks` is in rank order. A pure
/// function. Trainers call it before they create their first communicator, and stop if a finding is
/// an error.
std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks);

/// Returns the hosts with errors, which the user can exclude from the job. Returns an empty list if
/// no host would be left.
std::vector<std::string> hosts_to_exclude(const std::vector<Finding>& findings,
                                          const std::vector<std::string>& all_hosts);

}  // namespace trireme::job
