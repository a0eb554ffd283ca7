#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace trireme {

class Activity;

/// Which reductions the mpi backend uses: `ordered` adds in rank order in our own chunks and
/// overlaps with compute; `library` hands the buffer to MPI_Iallreduce and its kin: the plain path
/// to compare with.
enum class MpiReduce { ordered, library };

/// Options of a communicator; groups made by split inherit them.
struct CommOptions {
  double timeout_s = 600;               // a Work::wait longer than this throws Error(comm)
  std::size_t recorder_length = 256;    // operations kept by recent()
  std::uint64_t chunk_bytes = 1 << 20;  // pieces of a large reduction, thread and mpi backends
  int chunks_in_flight = 4;             // per peer
  MpiReduce mpi_reduce = MpiReduce::ordered;
  bool shares_cores = false;  // ranks of this node are more than its cores; make_world knows
  std::shared_ptr<Activity>
      activity;  // shared by all groups of a rank and read by the heartbeat; may be null
};

}  // namespace trireme
