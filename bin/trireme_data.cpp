/// trireme-data: from text to token shards, on any machine: links no LibTorch and no CUDA.

#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "comm/factory.hpp"
#include "config/command_line.hpp"
#include "core/files/hdf5.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"
#include "core/process/run_main.hpp"

namespace {

using namespace trireme;

/// MPI, once a command needs to know its ranks.
class Launch {
 public:
  Launch(int* argc, char*** argv) : argc_(argc), argv_(argv) {}

  const LaunchInfo& info() {
    if (!session_) {
      session_ = std::make_unique<Session>(argc_, argv_);
      log::Config config;
      config.rank = session_->launch().rank;
      config.size = session_->launch().size;
      log::init(config);
      failpoints_init(session_->launch().rank);
    }
    return session_->launch();
  }

  Communicator& world() {
    // Ranks meet at the end of hours of work of their own: the slowest one sets
    // the pace, no timeout does.
    CommOptions options;
    options.timeout_s = 1e9;
    if (!world_) world_ = make_world("auto", info(), options);
    return *world_;
  }

  /// Peers may wait in a collective for a rank that failed: they end with it. A stop is agreed on.
  void end(int code) {
    if (code != kExitDone && code != kExitStopped && session_ && session_->launch().size > 1)
      abort_job(code);
    world_.reset();
    session_.reset();
  }

 private:
  int* argc_;
  char*** argv_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Communicator> world_;
};

std::string version_text() {
  return "trireme-data " TRIREME_VERSION "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Launch launch(&argc, &argv);
  const int code = run_main("trireme-data", [&] {
    hdf5_init();
    const DataProgram program{[&]() -> Communicator& { return launch.world(); },
                              [&] { return launch.info().rank; }};
    CommandLine line("trireme-data", "turns text into token shards for training", version_text);
    line.group("tokenizer", "learn a tokenizer, and use it");
    add_tokenizer_train_command(line, program);
    add_tokenizer_encode_command(line, program);
    add_tokenizer_decode_command(line, program);
    add_pack_command(line, program);
    add_import_command(line, program);
    add_inspect_command(line, program);
    add_verify_command(line, program);
    add_synth_command(line, program);
    add_bench_command(line, program);
    return line.run(argc, argv);
  });
  launch.end(code);
  return code;
}
