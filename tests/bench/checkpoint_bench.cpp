// usage: [mpirun -n N] checkpoint_bench DIR MEGABYTES [REPEATS [KEEP]]
// Measures save, verified load and the stall of an asynchronous save, interleaved with a raw write
// + fsync and a raw read of the same bytes on the same disk (checkpoint/bench/measure.hpp), and
// prints JSON. DIR must not exist. Every rank has the whole state; the ranks share the writing.
// compare_dcp.py compares this with torch.distributed.checkpoint.
#include <cstdio>
#include <cstdlib>

#include "checkpoint/bench/measure.hpp"
#include "comm/factory.hpp"
#include "comm/session.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc < 3) return exit_code(ErrorKind::usage);
  return run_main("checkpoint_bench", [&] {
    hdf5_init();
    const comm::Session session(&argc, &argv);
    const auto world = comm::make_world("auto", session.launch());
    const checkpoint::MeasureOptions options{
        .bytes = static_cast<std::uint64_t>(std::atoll(argv[2])) << 20,
        .repeats = argc > 3 ? std::atoll(argv[3]) : 5,
        .replicated = true,
        .keep_last = argc > 4};
    const checkpoint::MeasuredCheckpoint measured =
        checkpoint::measure_checkpoint(argv[1], options, *world);
    if (world->rank() == 0) std::fputs(checkpoint::measured_json(measured).c_str(), stdout);
    return kExitDone;
  });
}
