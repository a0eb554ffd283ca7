#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/model_options.hpp"
#include "bin/trireme/print_figures.hpp"
#include "core/error.hpp"
#include "generate/engine_config.hpp"
#include "generate/load/load_model.hpp"
#include "generate/measure.hpp"

namespace trireme {
namespace {

struct BenchGenerateSettings {
  generate::ModelOptions model;
  generate::GenerationLoad load;
  std::int64_t repeats = 3;
  bool json = false;
};

int run(const BenchGenerateSettings& settings) {
  const generate::GenerationLoad& load = settings.load;
  const auto at_least = [](const char* option, std::int64_t value, std::int64_t least) {
    if (value < least) fail(ErrorKind::usage, "{} {}, must be {} or more", option, value, least);
  };
  generate::check_batch("--batch", load.batch);
  generate::check_cuda_graph(load.cuda_graph);
  at_least("--prompt-tokens", load.prompt_tokens, 1);
  at_least("--new-tokens", load.new_tokens, 2);
  at_least("--repeats", settings.repeats, 1);
  const auto model = generate::load_model(settings.model);
  const std::int64_t longest = model->transformer->config().max_seq_len;
  if (load.prompt_tokens > longest || load.new_tokens > longest - load.prompt_tokens) {
    fail(ErrorKind::usage, "--prompt-tokens {} and --new-tokens {}, together at most {}",
         load.prompt_tokens, load.new_tokens, longest);
  }
  const generate::GenerationFigures figures =
      generate::measure_generation(*model, load, settings.repeats);
  const Json json{{"batch", load.batch},
                  {"prompt_tokens", load.prompt_tokens},
                  {"new_tokens", load.new_tokens},
                  {"precision", settings.model.precision},
                  {"weights", settings.model.weights},
                  {"threads", figures.threads},
                  {"prefill_tokens_per_s", figures.prefill_tokens_per_s},
                  {"decode_tokens_per_s", figures.decode_tokens_per_s},
                  {"first_token_s", figures.first_token_s},
                  {"weight_bytes", figures.weight_bytes},
                  {"memory_bytes_per_s", figures.memory_bytes_per_s},
                  {"bandwidth_share", figures.bandwidth_share},
                  {"graph_launches", figures.graph_launches}};
  return print_figures(json, settings.json);
}

}  // namespace

void add_bench_generate_command(config::CommandLine& line) {
  const auto settings = std::make_shared<BenchGenerateSettings>();
  config::Command& command = line.command(
      "bench generate",
      "measure prefill and decode throughput, and how close decode is to memory bandwidth");
  add_model_options(command, settings->model);
  add_cuda_graph_option(command, settings->load.cuda_graph);
  add_weights_option(command, settings->model)
      .option("--batch", &settings->load.batch, "B", "sequences generated at once")
      .option("--prompt-tokens", &settings->load.prompt_tokens, "P",
              "tokens of each synthetic prompt")
      .option("--new-tokens", &settings->load.new_tokens, "N",
              "generated tokens of each sequence, 2 or more")
      .option("--repeats", &settings->repeats, "N",
              "measurements after one warm-up; the fastest is reported")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .example(
          "trireme bench generate --checkpoint runs/first --batch 8 --prompt-tokens 128 --json")
      .run([settings] { return run(*settings); });
}

}  // namespace trireme
