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
  std::string seen;     // "" if this rank sees the file of rank 0 or does not look, else the error
  std::string written;  // "" if this rank can write there or does not try, else the error
  std::string absent_data;  // path of a data set that this rank does not find; "" if it finds all
  std::string config;       // hash of the config.toml of the run; "" without one
};

/// The directories to check: the run directory ("" for none; if it does not exist, its nearest
/// existing parent) and the token sets.
struct SharedDirectories {
  std::filesystem::path run;
  std::vector<std::filesystem::path> data;
};

/// Checks the run directory (if it does not exist, its nearest existing parent on rank 0): a file of
/// rank 0 must appear on all nodes within seconds, and each node must be able to write (a write that
/// fails for a cause that may pass, such as a full disk, is no finding). Removes all files that it
/// creates. Returns the findings on rank 0 and an empty list on other ranks.
/// Collective. Trainers call it before they create the run directory.
std::vector<Finding> check_run_is_shared(comm::Communicator& world, const comm::LaunchInfo& launch,
                                         const std::vector<RankDevice>& ranks,
                                         const std::filesystem::path& run);

/// Checks all shared directories: the run directory as above (every failed write is a finding), all
/// ranks must see the data and the same configuration, and space and inodes must be free. Returns the findings on rank 0 and an
/// empty list on other ranks. Collective.
std::vector<Finding> check_directories(comm::Communicator& world, const comm::LaunchInfo& launch,
                                       const std::vector<RankDevice>& ranks,
                                       const SharedDirectories& directories);

}  // namespace trireme::job
