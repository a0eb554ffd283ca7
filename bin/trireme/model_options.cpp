#include "bin/trireme/model_options.hpp"

#include "checkpoint/upkeep/commands.hpp"

namespace trireme {

Command& add_model_options(Command& command, ModelOptions& options) {
  return command
      .option("--checkpoint", &options.checkpoint, "DIR", "checkpoint, run or Hugging Face folder",
              Need::required)
      .flag("--allow-older", options.allow_older, kAllowOlderHelp)
      .option("--threads", &options.threads, "N", "CPU threads; 0: OMP_NUM_THREADS, else all cores")
      .option("--device", &options.device, "auto|cpu|cuda", "where it runs")
      .option("--precision", &options.precision, "fp32|bf16|fp16|fp64", "of the weights");
}

}  // namespace trireme
