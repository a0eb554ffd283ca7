#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session.hpp"
#include "job/doctor/findings.hpp"

namespace trireme {

/// What one rank finds of the folders that all ranks are to share.
struct PlaceFacts {
  std::string seen;         // "" if rank 0's file is there, else why not
  std::string written;      // "" if this rank could write beside it, else why not
  std::string absent_data;  // a set that is not there; "" if all are
  std::string config;       // hash of the run's config.toml; "" without one
};

/// What is looked at: the run folder (it need not exist: the nearest folder above it that does; "" for
/// none), and the token sets.
struct SharedPlaces {
  std::filesystem::path run;
  std::vector<std::filesystem::path> data;
};

/// Collective: whether a file of rank 0's appears on all nodes within seconds, whether each can write
/// there, what space and how many files are left, and whether all see the data and one configuration.
/// Leaves nothing behind. The findings are on rank 0, elsewhere empty.
std::vector<Finding> check_places(Communicator& world, const LaunchInfo& launch,
                                  const std::vector<RankDevice>& ranks, const SharedPlaces& places);

}  // namespace trireme
