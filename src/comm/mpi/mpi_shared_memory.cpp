#include "comm/mpi/mpi_shared_memory.hpp"

#include <array>
#include <atomic>
#include <optional>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace trireme::comm {
namespace {

bool on_one_node(MPI_Comm group, int node) {
  const std::array<int, 2> mine{node, -node};
  std::array<int, 2> most{};
  check_mpi(MPI_Allreduce(mine.data(), most.data(), 2, MPI_INT, MPI_MAX, group),
            "MPI_Allreduce of nodes");
  return most[0] == -most[1];
}

/// Returns the lowest rank with an error, or `size`. Collective.
int first_failed(MPI_Comm group, int rank, int size, bool failed) {
  const int mine = failed ? rank : size;
  int first = size;
  check_mpi(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, group), "MPI_Allreduce of errors");
  return first;
}

void report_messages(const Error& error) {
  static std::atomic<bool> reported = false;
  if (!reported.exchange(true))
    log::warn(formatted("the ranks of this node exchange messages instead of shared memory: {}",
                        error.what()));
}

}  // namespace

std::shared_ptr<SharedRings> share_memory(MPI_Comm group, const CommOptions& options) {
  if (options.shared_memory == SharedMemory::never || options.mpi_reduce == MpiReduce::library ||
      !on_one_node(group, options.node))
    return nullptr;
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(group, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(group, &size), "MPI_Comm_size");
  const RingLayout layout = RingLayout::of(size, options.shared_bytes, options.chunk_bytes);
  std::unique_ptr<SharedWindow> window;
  WindowName name;  // process 0: rank 0 could not create the window
  std::optional<Error> error = capture([&] {
    if (rank != 0) return;
    window = std::make_unique<SharedWindow>(layout.window_bytes());
    name = window->name();
  });
  check_mpi(MPI_Bcast(&name, sizeof name, MPI_BYTE, 0, group), "MPI_Bcast of the shared memory");
  if (name.process != 0) {
    error = capture([&] {
      if (rank != 0) window = std::make_unique<SharedWindow>(name);
      window->reserve(static_cast<std::uint64_t>(rank) * layout.segment_bytes(),
                      layout.segment_bytes());
    });
  }
  const int failed = first_failed(group, rank, size, error.has_value());
  if (failed == size) {
    window->close_file();
    return std::make_shared<SharedRings>(std::move(window), layout, rank, !options.shares_cores);
  }
  if (options.shared_memory == SharedMemory::always)
    fail(
        ErrorKind::resource,
        "parallel.shared_memory is true, but rank {} of a group of {} ranks cannot share memory{}{}. "
        "Set parallel.shared_memory to auto or false.",
        failed, size, error ? ": " : "", error ? error->what() : "");
  if (failed == rank) report_messages(*error);
  return nullptr;
}

}  // namespace trireme::comm
