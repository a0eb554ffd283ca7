#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme {

/// Looks at each input, in the order given. An argument is a file, a folder (all files below it with
/// the suffix of an input format, sorted by name) or, if no file has that name, a pattern with *, ?
/// or [ (sorted). Compressed files are decompressed once to learn the size of their streams, and so
/// checked, shared over threads and ranks (collective over `world`; null: this process alone).
/// Throws Error(usage) for no file at all, a folder or pattern without any, one file given twice;
/// Error(data) for an unknown format and for what cannot be read or is damaged. With ranks, one of
/// them throws the error and the others PeerFailed.
std::vector<InputFile> inspect_inputs(const std::vector<std::string>& arguments,
                                      std::int64_t threads = 1, Communicator* world = nullptr);

/// inspect_inputs for inputs of records: also refuses content that cannot be records
/// (InputFormat::check), such as a JSON array.
std::vector<InputFile> inspect_records(const std::vector<std::string>& arguments,
                                       std::int64_t threads = 1, Communicator* world = nullptr);

}  // namespace trireme
