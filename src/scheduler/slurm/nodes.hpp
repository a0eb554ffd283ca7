#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace trireme {

/// The arguments of sinfo whose output read_nodes() reads.
std::vector<std::string> sinfo_words();

/// Parses the output of sinfo_words(). Skips lines of another form.
std::vector<NodeKind> read_nodes(std::string_view sinfo);

/// Parses a time of Slurm: "30", "30:00", "4:00:00", "2-12", "2-12:00:00", "infinite". Returns
/// seconds; none for no limit. Throws Error(usage) for invalid text.
std::optional<double> slurm_time_s(std::string_view text);

}  // namespace trireme
