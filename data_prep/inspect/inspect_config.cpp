#include "data_prep/inspect/inspect_config.hpp"

namespace trireme {

void check(const InspectConfig& config, Problems& problems) {
  if (config.line < InspectConfig::kNone || config.sample < InspectConfig::kNone)
    problems.add("--line and --sample must be 0 or more");
  if (config.line >= 0 && config.sample >= 0)
    problems.add("--line and --sample exclude each other");
}

}  // namespace trireme
