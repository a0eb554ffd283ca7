#include "bin/generate_command.hpp"

#include <cstdio>

#include "checkpoint/commands.hpp"
#include "core/run_main.hpp"
#include "serve/load_model.hpp"
#include "train/device.hpp"

namespace trireme {

GenerateCommand::GenerateCommand(CommandLine& line) {
  line.command("generate", "continue a text with a trained model")
      .option("--checkpoint", &checkpoint_, "DIR", "checkpoint or run folder", Need::required)
      .flag("--allow-older", allow_older_, kAllowOlderHelp)
      .option("--prompt", &prompt_, "TEXT", "text to continue", Need::required)
      .option("--max-tokens", &options_.max_tokens, "N", "most new tokens")
      .option("--temperature",
              &options_.sampling.temperature,
              "X",
              "spread of the draw; 0: always the most likely token")
      .option(
          "--top-k", &options_.sampling.top_k, "K", "draw among the k most likely tokens; 0: all")
      .option("--top-p",
              &options_.sampling.top_p,
              "P",
              "draw among the likeliest tokens of this total probability")
      .option("--seed", &options_.sampling.seed, "N", "of the draws")
      .option("--device", &device_, "NAME", "auto, cpu or cuda")
      .option("--precision", &precision_, "NAME", "fp32, bf16, fp16 or fp64")
      .example(
          "trireme generate --checkpoint runs/first --prompt \"Once upon a time\" --max-tokens 50 "
          "--temperature 0")
      .run([this] { return run(); });
}

int GenerateCommand::run() {
  check(options_.sampling);
  if (options_.max_tokens < 1)
    fail(ErrorKind::usage, "--max-tokens ", options_.max_tokens, ", must be 1 or more");
  set_cpu_threads(0, 1);
  const at::Device device = choose_device(device_, 0);
  const auto model = load_model(checkpoint_, precision_dtypes(precision_), device, allow_older_);
  StreamDecoder decoder(model->tokenizer, /*skip_special_tokens=*/true);
  generate(*model->transformer,
           encode_prompt(model->tokenizer, prompt_),
           model->tokenizer.eos_id(),
           options_,
           [&](std::uint32_t token) {
             print(decoder.push(token));
             std::fflush(stdout);
           });
  print(decoder.finish() + "\n");
  return kExitDone;
}

}  // namespace trireme
