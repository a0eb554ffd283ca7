#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace trireme {

/// Expands Slurm's short form of node names: "n[1-2,07],m3" is n1, n2, n07, m3. Returns an empty
/// list if the text has another form.
std::vector<std::string> expand_nodes(std::string_view list);

/// Returns the nodes of a step. `list`: SLURM_STEP_NODELIST, "n[1-3]"; `tasks`:
/// SLURM_STEP_TASKS_PER_NODE, "2(x2),1". Returns an empty list if the two do not match.
std::vector<StepNode> step_nodes(std::string_view list, std::string_view tasks);

}  // namespace trireme
