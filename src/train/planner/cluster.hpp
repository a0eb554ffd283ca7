#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/planner/network.hpp"

namespace trireme::planner {

/// One kind of device with values from data sheets and public measurements.
struct DeviceKind {
  std::string_view name;
  double peak_flops;          // dense 16-bit FLOP/s; for a CPU those of all cores
  double memory_bytes;        // memory that a process sees
  double memory_bytes_per_s;  // memory bandwidth
  LinkSpeeds links;
  double held_bytes;  // memory of driver and communicators
  /// Ranks of a node share its cores and memory bandwidth (CPU), and communication does not overlap
  /// with computation.
  bool shares_node = false;
  int cores = 1;  // cores of such a node
};

/// Returns the kind of this name. Throws Error(usage) with the known names.
const DeviceKind& device_kind(const std::string& name);
std::vector<std::string> device_kind_names();

inline constexpr int kMostPlannedRanks = 65536;

/// The devices of a run, at most kMostPlannedRanks.
struct Cluster {
  DeviceKind device;
  int nodes = 1;
  int per_node = 1;

  [[nodiscard]] int ranks() const { return nodes * per_node; }
};

}  // namespace trireme::planner
