#pragma once
#include <filesystem>
#include <string>

namespace trireme {

/// Returns the last error that a command printed into the output `file` of a job since the job's newest
/// start, without the rank and the program's name; "" if there is none or the file cannot be read.
/// A command that refuses its options or data leaves nothing in the run directory that says why.
std::string refusal_in(const std::filesystem::path& file);

}  // namespace trireme
