#include "bin/trireme/generate_command.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "checkpoint/upkeep/commands.hpp"
#include "comm/agree.hpp"
#include "core/files/json.hpp"
#include "core/process/run_main.hpp"
#include "parallel/device.hpp"
#include "serve/load_model.hpp"

namespace trireme {

GenerateCommand::GenerateCommand(CommandLine& line) {
  line.command("generate", "continue a text with a trained model")
      .option("--checkpoint", &checkpoint_, "DIR", "checkpoint or run folder", Need::required)
      .flag("--allow-older", allow_older_, kAllowOlderHelp)
      .option("--prompt", &prompt_, "TEXT",
              "text to continue; special tokens in it count; -: standard input, without its last "
              "line end")
      .option("--prompts", &prompts_file_, "FILE",
              "or: one {\"prompt\": \"...\"} a line; -: standard input")
      .flag("--json", json_, "a line {\"index\", \"text\", \"ids\"} for each prompt")
      .option("--max-tokens", &options_.max_tokens, "N", "most new tokens")
      .option("--temperature", &options_.sampling.temperature, "X",
              "spread of the draw; 0: always the most likely token")
      .option("--top-k", &options_.sampling.top_k, "K",
              "draw among the k most likely tokens; 0: all")
      .option("--top-p", &options_.sampling.top_p, "P",
              "draw among the likeliest tokens of this total probability")
      .option("--seed", &options_.sampling.seed, "N", "of the draws")
      .option("--device", &device_, "auto|cpu|cuda", "where it runs")
      .option("--precision", &precision_, "fp32|bf16|fp16|fp64", "of the weights")
      .example(
          "trireme generate --checkpoint runs/first --prompt \"Once upon a time\" --max-tokens 50 "
          "--temperature 0")
      .example("trireme generate --checkpoint runs/first --prompts prompts.jsonl --json")
      .run([this] { return run(); });
}

std::vector<Prompt> GenerateCommand::prompts() const {
  if (prompt_.empty() == prompts_file_.empty())
    fail(ErrorKind::usage, "give either --prompt TEXT or --prompts FILE (-: standard input)");
  if (prompts_file_ == "-") return read_prompts(stdin);
  if (!prompts_file_.empty()) return read_prompts(prompts_file_);
  if (prompt_.size() > 1) {
    fail(
        ErrorKind::usage,
        "--prompt takes one text, {} are given: quote it, or write several to a file for --prompts",
        prompt_.size());
  }
  return {{prompt_.front() == "-" ? read_prompt(stdin) : prompt_.front(), ""}};
}

int GenerateCommand::run() {
  check(options_.sampling);
  if (options_.max_tokens < 1)
    fail(ErrorKind::usage, "--max-tokens {}, must be 1 or more", options_.max_tokens);
  const std::vector<Prompt> prompts = this->prompts();
  set_cpu_threads(0, 1);
  const at::Device device = choose_device(device_, 0);
  const auto model = load_model(checkpoint_, precision_dtypes(precision_), device, allow_older_);
  std::vector<std::vector<std::uint32_t>> ids;  // all at once: a bad one ends it before hours
  for (const Prompt& prompt : prompts) {
    const auto error = capture([&] {
      ids.push_back(
          encode_prompt(model->tokenizer, prompt.text, model->transformer->config().max_seq_len));
    });
    if (error && prompt.where.empty()) throw Error(*error);
    if (error) fail(ErrorKind::data, "{}: {}", prompt.where, error->what());
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!prompts_file_.empty() && !json_)
      print(formatted("{}==> {} <==\n", i == 0 ? "" : "\n", prompts[i].where));
    continue_prompt(*model, i, ids[i]);
  }
  return kExitDone;
}

void GenerateCommand::continue_prompt(const LoadedModel& model, std::size_t index,
                                      const std::vector<std::uint32_t>& ids) const {
  StreamDecoder decoder(model.tokenizer, /*skip_special_tokens=*/true);
  std::string text;
  const auto take = [&](const std::string& piece) {
    if (json_) {
      text += piece;
    } else {
      print(piece);
      std::fflush(stdout);
    }
  };
  const std::vector<std::uint32_t> produced =
      generate(*model.transformer, ids, model.end_tokens, options_,
               [&](std::uint32_t token) { take(decoder.push(token)); });
  take(decoder.finish());
  print(json_ ? Json{{"index", index}, {"text", text}, {"ids", produced}}.dump() + "\n" : "\n");
  std::fflush(stdout);
}

}  // namespace trireme
