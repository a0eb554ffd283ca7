#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {

/// Inspects each input in the given order. An argument is a file, a directory (all files below it
/// with the suffix of an input format, sorted by name) or, if no file has that name, a pattern with
/// *, ? or [ (sorted). Decompresses compressed files once to check them and to learn the size of
/// their streams, split over threads and ranks. Collective over `world` (null: this process alone).
/// Throws Error(usage) for no file at all and for a file given twice; Error(data) for a directory
/// or pattern without files, an unknown format, and a file that is damaged or cannot be read. With
/// ranks, one rank throws the error and the others throw PeerFailed.
std::vector<InputFile> inspect_inputs(const std::vector<std::string>& arguments,
                                      std::int64_t threads = 1,
                                      comm::Communicator* world = nullptr);

/// Like inspect_inputs, for inputs of records: also finds formats that only the content shows
/// (InputFormat::by_content). Reads a JSON array once to check the bounds of its records.
std::vector<InputFile> inspect_records(const std::vector<std::string>& arguments,
                                       std::int64_t threads = 1,
                                       comm::Communicator* world = nullptr);

}  // namespace trireme::data_prep
