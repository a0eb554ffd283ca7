#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace trireme::comm {

class Activity;

/// The reductions of the mpi backend. `ordered` adds in rank order and overlaps with compute.
/// `library` calls MPI_Iallreduce and related functions, as a plain path for comparison.
enum class MpiReduce { ordered, library };

/// Selects the collectives of large buffers through shared memory, for groups of the mpi backend
/// with all ranks on one node. `automatic` uses messages if the memory is not available, `always`
/// throws Error(resource) then.
enum class SharedMemory { automatic, always, never };

/// Options of a communicator; groups created by split() inherit them.
struct CommOptions {
  double timeout_s = 600;               // Work::wait throws Error(comm) after this time
  std::size_t recorder_length = 256;    // number of operations that recent() keeps
  std::uint64_t chunk_bytes = 1 << 20;  // chunk size of a large reduction on thread and mpi
  int chunks_in_flight = 4;             // per peer
  MpiReduce mpi_reduce = MpiReduce::ordered;
  SharedMemory shared_memory = SharedMemory::automatic;
  /// nccl: kernels of all groups start on the device in the order of the calls on the host. Must be
  /// false if a rank calls sends and receives of which one can wait for a later call (pipeline
  /// parallelism). The first communicator of the process decides.
  bool launch_order = true;
  std::uint64_t shared_bytes = 1 << 20;  // shared memory from a rank to another one, about
  int node = 0;                          // node of this rank; set by make_world()
  bool shares_cores = false;             // more ranks than cores on this node; set by make_world()
  std::shared_ptr<Activity>
      activity;  // shared by all groups of a rank and read by the heartbeat; may be null
};

}  // namespace trireme::comm
