#pragma once
#include <string>
#include <vector>

#include "job/doctor/rank_facts.hpp"

namespace trireme {

/// One thing that is wrong, or may be.
struct Finding {
  enum class Severity { note, warning, error };

  std::string id;  // "gpu-absent"
  Severity severity = Severity::warning;
  std::string where;  // "ranks 2, 3 (host n2)"
  std::string what;
  std::string advice;                // what to do
  std::vector<std::string> hosts{};  // that it is about; none: all

  /// "n2: what; what to do"
  [[nodiscard]] std::string line() const;
};

const char* severity_name(Finding::Severity severity);

/// What the facts of all ranks, in rank order, tell. Pure; the checks that trainers make before their
/// first communicator are the errors among these.
std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks);

/// Of errors, the hosts that another choice of nodes would leave out; none where that would be all.
std::vector<std::string> hosts_to_exclude(const std::vector<Finding>& findings,
                                          const std::vector<std::string>& all_hosts);

}  // namespace trireme
