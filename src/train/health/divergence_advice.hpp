#pragma once
#include <string>

#include "train/config/config.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// What to do about a run that diverged: a command line that starts a new run beside it, from its
/// newest checkpoint with half the learning rate, or anew where it has none.
///   program  as the user called it, and task  its command
///   ranks    how many it was started on
std::string divergence_advice(const RunConfig& config, const RunFolder& folder,
                              const std::string& program, std::string_view task, int ranks);

}  // namespace trireme
