#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session.hpp"
#include "job/doctor/findings.hpp"

namespace trireme::job {

/// The state of the shared directories as one rank sees it.
struct DirectoryFacts {
  std::string seen;         // "" if this rank sees the file of rank 0, else the error
  std::string written;      // "" if this rank can write there, else the error
  std::string absent_data;  // a missing data set; "" if all exist
  std::string config;       // hash of the config.toml of the run; "" without one
};

/// The directories to check: the run directory ("" for none; if it does not exist, its nearest
/// existing parent) and the token sets.
struct SharedDirectories {
  std::filesystem::path run;
  std::vector<std::filesystem::path> data;
};

/// Checks that a file of rank 0 appears on all nodes within seconds, that each node can write, how
/// much space and how many files are left, and that all ranks see the data and the same
/// configuration. Leaves no files behind. Returns the findings on rank 0, elsewhere nothing.
/// Collective.
std::vector<Finding> check_places(comm::Communicator& world, const comm::LaunchInfo& launch,
                                  const std::vector<RankDevice>& ranks,
                                  const SharedDirectories& places);

}  // namespace trireme::job
