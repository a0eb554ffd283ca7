#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace trireme::comm {

class Activity;

/// The reductions of the mpi backend. `ordered` adds in rank order and overlaps with compute.
/// `library` calls MPI_Iallreduce and related functions, as a plain path for comparison.
enum class MpiReduce { ordered, library };

/// Options of a communicator; groups created by split() inherit them.
struct CommOptions {
  double timeout_s = 600;               // Work::wait throws Error(comm) after this time
  std::size_t recorder_length = 256;    // number of operations that recent() keeps
  std::uint64_t chunk_bytes = 1 << 20;  // chunk size of a large reduction on thread and mpi
  int chunks_in_flight = 4;             // per peer
  MpiReduce mpi_reduce = MpiReduce::ordered;
  bool shares_cores = false;  // more ranks than cores on this node; set by make_world()
  std::shared_ptr<Activity>
      activity;  // shared by all groups of a rank and read by the heartbeat; may be null
};

}  // namespace trireme::comm
