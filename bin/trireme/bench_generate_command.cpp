#include "bin/trireme/bench_generate_command.hpp"

#include <nlohmann/json.hpp>

#include "bin/trireme/model_options.hpp"
#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/process/run_main.hpp"
#include "generate/engine_config.hpp"

namespace trireme {

BenchGenerateCommand::BenchGenerateCommand(CommandLine& line) {
  add_model_options(
      line.command("bench generate",
                   "speed of reading prompts and of writing texts, and memory's limit"),
      model_)
      .option("--batch", &load_.batch, "B", "texts at once")
      .option("--prompt-tokens", &load_.prompt_tokens, "P", "of each text, made up")
      .option("--new-tokens", &load_.new_tokens, "N", "of each text, 2 or more")
      .option("--repeats", &repeats_, "N", "the fastest counts, after one to warm up")
      .flag("--json", json_, "one JSON document on one line instead of a table")
      .example(
          "trireme bench generate --checkpoint runs/first --batch 8 --prompt-tokens 128 --json")
      .run([this] { return run(); });
}

int BenchGenerateCommand::run() {
  const auto at_least = [](const char* option, std::int64_t value, std::int64_t least) {
    if (value < least) fail(ErrorKind::usage, "{} {}, must be {} or more", option, value, least);
  };
  check_batch("--batch", load_.batch);
  at_least("--prompt-tokens", load_.prompt_tokens, 1);
  at_least("--new-tokens", load_.new_tokens, 2);
  at_least("--repeats", repeats_, 1);
  const auto model = load_model(model_);
  const std::int64_t longest = model->transformer->config().max_seq_len;
  if (load_.prompt_tokens > longest || load_.new_tokens > longest - load_.prompt_tokens) {
    fail(ErrorKind::usage, "--prompt-tokens {} and --new-tokens {}, together at most {}",
         load_.prompt_tokens, load_.new_tokens, longest);
  }
  const GenerationFigures figures = measure_generation(*model, load_, repeats_);
  const Json json{{"batch", load_.batch},
                  {"prompt_tokens", load_.prompt_tokens},
                  {"new_tokens", load_.new_tokens},
                  {"precision", model_.precision},
                  {"threads", figures.threads},
                  {"prefill_tokens_per_s", figures.prefill_tokens_per_s},
                  {"decode_tokens_per_s", figures.decode_tokens_per_s},
                  {"first_token_s", figures.first_token_s},
                  {"weight_bytes", figures.weight_bytes},
                  {"memory_bytes_per_s", figures.memory_bytes_per_s},
                  {"bandwidth_share", figures.bandwidth_share}};
  if (json_) {
    print(json_line(json));
    return kExitDone;
  }
  std::string table;
  for (const auto& [name, value] : json.items())
    table +=
        formatted("{}: {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  print(table);
  return kExitDone;
}

}  // namespace trireme
