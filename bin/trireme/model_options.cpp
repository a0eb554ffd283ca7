#include "bin/trireme/model_options.hpp"

#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "generate/engine_config.hpp"

namespace trireme {

config::Command& add_model_options(config::Command& command, generate::ModelOptions& options,
                                   config::Need need) {
  return command
      .option("--checkpoint", &options.checkpoint, "MODEL", checkpoint::kModelPathHelp, need)
      .flag("--allow-older", options.allow_older, checkpoint::kAllowOlderHelp)
      .flag("--ema", options.ema, "use the EMA of the weights (train.ema_decay)")
      .option("--threads", &options.threads, "N",
              "number of CPU threads; 0: OMP_NUM_THREADS, else all cores")
      .option("--device", &options.device, "auto|cpu|cuda", "device to run on")
      .option("--precision", &options.precision, "fp32|bf16|fp16|fp64", "precision of the weights");
}

config::Command& add_weights_option(config::Command& command, generate::ModelOptions& options) {
  return command.option("--weights", &options.weights, "precision|int8",
                        "storage of the matrices of linear layers: as --precision, or int8 (CPU)");
}

config::Command& add_layout_options(config::Command& command, generate::ModelLayout& layout) {
  return command
      .option("--parallel.tp", &layout.tp, "N",
              "ranks that divide each layer of the model (tensor parallelism), on CPUs")
      .option("--parallel.pp", &layout.pp, "N",
              "ranks that divide the layers of the model (pipeline parallelism), on CPUs");
}

config::Command& add_chat_template_option(config::Command& command,
                                          generate::ModelOptions& options) {
  return command
      .option("--chat-template", &options.chat_template, "NAME",
              "chat format, or tokenizer: its Jinja template; default: that of the checkpoint")
      .option("--chat-template-file", &options.chat_template_file, "FILE",
              "Jinja chat template in a file, instead of --chat-template");
}

config::Command& add_cuda_graph_option(config::Command& command, std::string& mode) {
  return command.option("--cuda-graph", &mode, "auto|true|false", generate::kCudaGraphHelp);
}

config::Command& add_draw_options(config::Command& command, generate::SamplingConfig& sampling) {
  return command
      .option("--temperature", &sampling.temperature, "X",
              "sampling temperature; 0: always the most likely token")
      .option("--top-k", &sampling.top_k, "K", "sample only the K most likely tokens; 0: all")
      .option("--top-p", &sampling.top_p, "P",
              "sample only the most likely tokens with this total probability");
}

}  // namespace trireme
