#pragma once

/// How long ranks take to exchange bytes: a latency and a bandwidth (alpha-beta), as NCCL's own model
/// has it when it picks an algorithm (src/graph/tuning.cc; its constants for the Simple protocol).
namespace trireme::planner {

struct Latencies {
  double base_s = 8.4e-6;
  double ring_node_s = 3.4e-6;  // a hop inside a node
  double ring_network_s = 14e-6;
  double tree_node_s = 4e-6;
  double tree_network_s = 14e-6;
};

struct LinkSpeeds {
  double node_bytes_per_s = 0;     // bus bandwidth of a rank inside its node
  double network_bytes_per_s = 0;  // of a rank's adapter
  Latencies latencies = {};
};

/// The ranks of a group and how many of them are on each node.
struct GroupShape {
  int ranks = 1;
  int per_node = 1;

  [[nodiscard]] int nodes() const { return (ranks + per_node - 1) / per_node; }
};

/// Of `ranks` ranks that lie `stride` apart, on nodes of `node_ranks`.
GroupShape group_shape(int ranks, int stride, int node_ranks);

/// Seconds of one collective; 0 in a group of one. All groups of its kind run at once, each on the
/// adapters of its own ranks. `bytes`: of the whole tensor.
class Network {
 public:
  explicit Network(const LinkSpeeds& links) : links_(links) {}

  [[nodiscard]] double ring_all_reduce_s(double bytes, GroupShape group) const;
  [[nodiscard]] double tree_all_reduce_s(double bytes, GroupShape group) const;
  /// The faster of both.
  [[nodiscard]] double all_reduce_s(double bytes, GroupShape group) const;
  /// All-gather, or reduce-scatter: half of a ring's all-reduce.
  [[nodiscard]] double gather_s(double bytes, GroupShape group) const;
  /// `bytes`: that each rank sends to all.
  [[nodiscard]] double all_to_all_s(double bytes, GroupShape group) const;
  [[nodiscard]] double send_s(double bytes, bool across_nodes) const;

 private:
  /// What the slowest part of a ring or tree carries.
  [[nodiscard]] double bus_bytes_per_s(GroupShape group) const;
  [[nodiscard]] double ring_latency_s(GroupShape group) const;

  LinkSpeeds links_;
};

}  // namespace trireme::planner
