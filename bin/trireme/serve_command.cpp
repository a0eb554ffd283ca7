#include <cstdio>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/model_options.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "serve/serve.hpp"

namespace trireme {
namespace {

int run(const ServeOptions& options) {
  serve(options, [](const std::string& url) {
    print(url + "\n");
    if (std::fflush(stdout) != 0)
      fail(ErrorKind::resource, "cannot write standard output, which should have the URL");
  });
  return kExitDone;
}

}  // namespace

void add_serve_command(CommandLine& line) {
  const auto options = std::make_shared<ServeOptions>();
  Command& command =
      line.command("serve", "answer requests with a model: OpenAI's API and a web page");
  add_model_options(command, options->model);
  add_chat_template_option(command, options->model)
      .option("--host", &options->host, "ADDRESS",
              "where it listens; another one than this machine's own needs a token")
      .option("--port", &options->port, "N", "0: any free one")
      .option(
          "--token", &options->token, "TEXT",
          "what requests must have as Authorization: Bearer TEXT; others on this machine see it "
          "in the list of processes")
      .option("--token-file", &options->token_file, "FILE", "or: the file that holds it")
      .option("--model-name", &options->model_name, "NAME",
              "what requests call the model; the folder's name")
      .option("--max-batch", &options->engine.max_batch, "N", "answers that are made at once")
      .option("--max-queue", &options->engine.max_queue, "N", "answers that wait; more get 429")
      .option("--max-context", &options->engine.max_context, "N",
              "most tokens of prompt and answer together; 0: the model's")
      .option("--kv-cache-mib", &options->engine.kv_cache_mib, "N",
              "memory for keys and values; 0: chosen")
      .option("--request-timeout-s", &options->request_timeout_s, "S",
              "a request that takes longer ends with 408")
      .option("--drain-s", &options->drain_s, "S",
              "after SIGTERM, what answers under way have to end")
      .example("trireme serve --checkpoint runs/sft")
      .example(
          "trireme serve --checkpoint hf/model --host 0.0.0.0 --port 8000 --token-file token.txt")
      .run([options] { return run(*options); });
}

}  // namespace trireme
