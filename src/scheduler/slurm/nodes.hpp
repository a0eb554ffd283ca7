#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace trireme {

/// The arguments of sinfo whose output read_nodes() reads.
std::vector<std::string> sinfo_words();

/// Lines that are not of that form are passed over.
std::vector<NodeKind> read_nodes(std::string_view sinfo);

/// Slurm's times: "30", "30:00", "4:00:00", "2-12", "2-12:00:00", "infinite" (none). Seconds; nullopt
/// inside for no limit. Throws Error(usage) for another text.
std::optional<double> slurm_time_s(std::string_view text);

}  // namespace trireme
