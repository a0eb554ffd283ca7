/// trireme-data: turns text into token shards on any machine; it links neither LibTorch nor CUDA.

#include "bin/run_command.hpp"
#include "bin/start_limit.hpp"
#include "bin/trireme_data/commands.hpp"
#include "bin/version.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  return run_main("trireme-data", [&] {
    hdf5_init();
    comm::CommOptions options;
    options.timeout_s = comm::kNoTimeout_s;  // a rank may wait hours for the slowest one
    comm::Launch launch("trireme-data", &argc, &argv, options);
    config::CommandLine line(
        "trireme-data", "turns text into token shards for training",
        [] { return std::string("trireme-data " TRIREME_VERSION "\n"); },
        [] { return version_json("trireme-data", {}); });
    line.group("tokenizer", "train a tokenizer, encode and decode text");
    add_tokenizer_train_command(line, launch);
    add_tokenizer_encode_command(line);
    add_tokenizer_decode_command(line);
    add_pack_command(line, launch);
    add_import_command(line, launch);
    add_inspect_command(line);
    add_verify_command(line);
    add_synth_command(line);
    add_bench_command(line);
    const comm::StartLimit limit = start_limit(argc, argv);
    return launch.run([&] { return run_command(line, launch, limit, argc, argv); });
  });
}
