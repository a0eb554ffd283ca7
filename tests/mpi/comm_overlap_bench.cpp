#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "comm/factory.hpp"
#include "comm/session.hpp"
#include "core/timer.hpp"

/// Measures the speed of all_reduce and how much of it overlaps with polling computation, for the
/// ordered and the library path, compared with a blocking MPI_Allreduce. Prints a table; not a
/// test.
///   mpirun -n 2 mpi_comm_overlap_bench [poll_ms] [chunk_kib] [chunks_in_flight]
namespace trireme {
namespace {

/// Computes in registers for about `seconds` and polls every `poll_s`.
[[gnu::noipa]] double compute(double loops, double poll_s, comm::Work* work, double* checksum) {
  const Timer total;
  Timer since;
  double x = 1.0;
  for (double done = 0; done < loops; done += 1) {
    for (int i = 0; i < 1000; ++i) x = x * 0.999999 + 1e-7;
    if (work != nullptr && since.seconds() > poll_s) {
      work->poll();
      since.restart();
    }
  }
  *checksum += x;
  return total.seconds();
}

/// Returns the smallest of the repeats: other users of the machine only add time.
struct Least {
  double value = 1e300;

  void add(double x) { value = std::min(value, x); }
};

struct Row {
  Least blocking_mpi, alone, compute, together, exposed;
};

Row measure(comm::Communicator& world, std::uint64_t count, double poll_s, int repeats) {
  std::vector<float> data(count, 1.0F);
  double checksum = 0;
  Row row;
  const auto start = [&] {
    return world.all_reduce({.input = data.data(),
                             .output = data.data(),
                             .count = count,
                             .dtype = DType::f32,
                             .op = comm::ReduceOp::max});
  };
  const auto mpi = [&] {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(count), MPI_FLOAT, MPI_MAX,
                  MPI_COMM_WORLD);
  };
  const auto time = [&](Least& least, const auto& body) {
    world.barrier();
    const Timer timer;
    body();
    least.add(timer.seconds());
  };
  for (int i = 0; i < 3; ++i) time(row.alone, [&] { start()->wait(); });
  Least loop;
  for (int i = 0; i < 10; ++i) loop.add(compute(100, 1, nullptr, &checksum) / 100);
  double loops = 1.5 * row.alone.value / loop.value;
  MPI_Bcast(&loops, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (int i = 0; i < repeats; ++i) {
    time(row.blocking_mpi, mpi);
    time(row.alone, [&] { start()->wait(); });
    time(row.compute, [&] { compute(loops, 1, nullptr, &checksum); });
    time(row.together, [&] {
      const auto work = start();
      compute(loops, poll_s, work.get(), &checksum);
      const Timer wait;
      work->wait();
      row.exposed.add(wait.seconds());
    });
  }
  // Uses the result, so that the computation is not optimized away.
  if (checksum == 0) std::puts("");
  return row;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const trireme::comm::Session session(&argc, &argv);
  const double poll_s = (argc > 1 ? std::stod(argv[1]) : 1.0) * 1e-3;
  trireme::comm::CommOptions options;
  if (argc > 2) options.chunk_bytes = std::stoull(argv[2]) << 10;
  if (argc > 3) options.chunks_in_flight = std::stoi(argv[3]);
  for (const auto reduce : {trireme::comm::MpiReduce::ordered, trireme::comm::MpiReduce::library}) {
    options.mpi_reduce = reduce;
    const auto world = trireme::comm::make_world("mpi", session.launch(), options);
    for (const std::uint64_t megabytes : {20, 100}) {
      const auto row = trireme::measure(*world, megabytes * 1000 * 1000 / 4, poll_s, 15);
      if (world->rank() != 0) continue;
      const double alone = row.alone.value;
      std::printf(
          "%-8s %3d MB  MPI_Allreduce %6.1f ms  alone %6.1f ms  compute %6.1f ms  together %6.1f "
          "ms  "
          "left at wait %5.1f ms (%3.0f %% hidden; %3.0f %% of wall time saved)\n",
          reduce == trireme::comm::MpiReduce::ordered ? "ordered" : "library",
          static_cast<int>(megabytes), row.blocking_mpi.value * 1e3, alone * 1e3,
          row.compute.value * 1e3, row.together.value * 1e3, row.exposed.value * 1e3,
          100 * (1 - row.exposed.value / alone),
          100 * (1 - (row.together.value - row.compute.value) / alone));
    }
  }
  return 0;
}
