#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/input/inputs.hpp"

namespace trireme {

/// inspect_inputs for inputs of JSON lines: also refuses files in which the first character that is
/// not blank is '[', a JSON array or lines that are arrays. Collective over `world` as that.
/// Throws Error(data) naming the file and the way to convert it, else as inspect_inputs.
std::vector<InputFile> inspect_lines(const std::vector<std::string>& arguments,
                                     std::int64_t threads = 1, Communicator* world = nullptr);

}  // namespace trireme
