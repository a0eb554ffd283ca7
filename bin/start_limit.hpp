#pragma once
#include <string>
#include <vector>

#include "comm/start_watch.hpp"

namespace trireme {

/// Returns the limit on the start of a command of all ranks: `train.start_timeout_s` from the
/// command line, else from TRIREME_TRAIN_START_TIMEOUT_S, from --config files or from the
/// configuration of the run. The limit is needed before the ranks parse the command line together,
/// so this function reads it separately. It ignores an invalid value, which the parser reports. The
/// marks lie beside --run or
/// --output.
comm::StartLimit start_limit(int argc, const char* const* argv);

/// Returns the value of the last option with a name in `names`; "" if there is none.
std::string last_option(int argc, const char* const* argv, const std::vector<std::string>& names);

}  // namespace trireme
