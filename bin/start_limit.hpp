#pragma once
#include <string>
#include <vector>

#include "comm/start_watch.hpp"

namespace trireme {

/// Returns the limit on the start of a command of all ranks. It is needed before the command line is
/// parsed, which the ranks do together, so it is read by itself: `train.start_timeout_s` from the
/// command line, else from TRIREME_TRAIN_START_TIMEOUT_S, from --config files or from the
/// configuration of the run. A value that cannot be used is left to the parser. The marks lie beside
/// --run or --output.
StartLimit start_limit(int argc, const char* const* argv);

/// Returns the value of the option that comes last among `names`; "" if there is none.
std::string last_option(int argc, const char* const* argv, const std::vector<std::string>& names);

}  // namespace trireme
