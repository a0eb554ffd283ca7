#include "bin/trireme/model_options.hpp"

#include "checkpoint/upkeep/commands.hpp"
#include "checkpoint/upkeep/model_place.hpp"

namespace trireme {

Command& add_model_options(Command& command, ModelOptions& options) {
  return command
      .option("--checkpoint", &options.checkpoint, "MODEL", kModelPlaceHelp, Need::required)
      .flag("--allow-older", options.allow_older, kAllowOlderHelp)
      .option("--threads", &options.threads, "N", "CPU threads; 0: OMP_NUM_THREADS, else all cores")
      .option("--device", &options.device, "auto|cpu|cuda", "where it runs")
      .option("--precision", &options.precision, "fp32|bf16|fp16|fp64", "of the weights");
}

Command& add_chat_template_option(Command& command, ModelOptions& options) {
  return command.option("--chat-template", &options.chat_template, "NAME",
                        "chat format; what the checkpoint was trained with");
}

Command& add_draw_options(Command& command, SamplingConfig& sampling) {
  return command
      .option("--temperature", &sampling.temperature, "X",
              "spread of the draw; 0: always the most likely token")
      .option("--top-k", &sampling.top_k, "K", "draw among the k most likely tokens; 0: all")
      .option("--top-p", &sampling.top_p, "P",
              "draw among the likeliest tokens of this total probability");
}

}  // namespace trireme
