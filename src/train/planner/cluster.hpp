#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::planner {

/// Latencies of one hop of a collective, in seconds. Source: NCCL, src/graph/tuning.cc, constants
/// of the Simple protocol.
struct Latencies {
  double base_s = 8.4e-6;
  double ring_node_s = 3.4e-6;  // one hop within a node
  double ring_network_s = 14e-6;
  double tree_node_s = 4e-6;
  double tree_network_s = 14e-6;
};

struct LinkSpeeds {
  double node_bytes_per_s = 0;     // bus bandwidth of a rank within its node
  double network_bytes_per_s = 0;  // bandwidth of a rank's adapter
  Latencies latencies = {};
};

/// The size of a group and its number of ranks per node.
struct GroupShape {
  int ranks = 1;
  int per_node = 1;

  [[nodiscard]] int nodes() const { return (ranks + per_node - 1) / per_node; }
};

/// Returns the shape of a group of `ranks` ranks with distance `stride` on nodes of `node_ranks`
/// ranks.
GroupShape group_shape(int ranks, int stride, int node_ranks);

/// Predicts the seconds of one collective with the alpha-beta model (latency and bandwidth) that
/// NCCL uses to choose an algorithm; 0 in a group of one rank. All groups of the same kind run at
/// the same time, each on the adapters of its ranks. `bytes` is the size of the whole tensor.
class Network {
 public:
  explicit Network(const LinkSpeeds& links) : links_(links) {}

  [[nodiscard]] double ring_all_reduce_s(double bytes, GroupShape group) const;
  [[nodiscard]] double tree_all_reduce_s(double bytes, GroupShape group) const;
  /// Returns the time of the faster algorithm, ring or tree.
  [[nodiscard]] double all_reduce_s(double bytes, GroupShape group) const;
  /// Returns the time of an all-gather or reduce-scatter: half of a ring all-reduce.
  [[nodiscard]] double gather_s(double bytes, GroupShape group) const;
  /// `bytes`: bytes that each rank sends in total.
  [[nodiscard]] double all_to_all_s(double bytes, GroupShape group) const;
  [[nodiscard]] double send_s(double bytes, bool across_nodes) const;

 private:
  /// Returns the bandwidth of the slowest link of a ring or tree.
  [[nodiscard]] double bus_bytes_per_s(GroupShape group) const;
  [[nodiscard]] double ring_latency_s(GroupShape group) const;

  LinkSpeeds links_;
};

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
  int cores = 1;       // cores of such a node
  int rank_cores = 0;  // cores that a rank uses at most, one for each thread; 0: an equal part
};

/// Returns the kind of this name. Throws Error(usage) with the known names.
const DeviceKind& device_kind(const std::string& name);
std::vector<std::string> device_kind_names();

/// Returns the first kind that is a part of the device's name, such as h100 for "NVIDIA H100 80GB
/// HBM3"; null if there is none.
const DeviceKind* kind_of_device(std::string_view device_name);

inline constexpr int kMostPlannedRanks = 65536;

/// The devices of a run, at most kMostPlannedRanks.
struct Cluster {
  DeviceKind device;
  int nodes = 1;
  int per_node = 1;

  [[nodiscard]] int ranks() const { return nodes * per_node; }
};

}  // namespace trireme::planner
