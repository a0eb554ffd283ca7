#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/planner/network.hpp"

namespace trireme::planner {

/// One device, as data sheets and public measurements have it.
struct DeviceKind {
  std::string_view name;
  double peak_flops;          // dense, of 16 bits; of a CPU all its cores
  double memory_bytes;        // that a process sees
  double memory_bytes_per_s;  // read or written
  LinkSpeeds links;
  double held_bytes;  // by the driver and by communicators, beside tensors
  /// Ranks of a node share its cores: products and memory of one slow those of all, and nothing
  /// is sent while they compute.
  bool shares_node = false;
  int cores = 1;  // of such a node
};

/// The kind of this name. Throws Error(usage) naming the known ones.
const DeviceKind& device_kind(const std::string& name);
std::vector<std::string> device_kind_names();

inline constexpr int kMostPlannedRanks = 65536;

/// Devices that a run is started on, kMostPlannedRanks at most.
struct Cluster {
  DeviceKind device;
  int nodes = 1;
  int per_node = 1;

  [[nodiscard]] int ranks() const { return nodes * per_node; }
};

}  // namespace trireme::planner
