#include <cstdio>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/model_options.hpp"
#include "comm/liveness/heartbeat.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "serve/serve.hpp"

namespace trireme {
namespace {

int run(const serve::ServeOptions& options, comm::Launch& launch) {
  const comm::Heartbeat heartbeat(launch.world(), launch.info(),
                                  std::make_shared<comm::Activity>());
  return serve::serve(options, {launch.world(), launch.info().local_rank, launch.info().local_size},
                      [](const std::string& url) {
                        print(url + "\n");
                        if (std::fflush(stdout) != 0)
                          fail(ErrorKind::resource, "cannot write the URL to standard output");
                      });
}

}  // namespace

void add_serve_command(config::CommandLine& line, comm::Launch& launch) {
  const auto options = std::make_shared<serve::ServeOptions>();
  config::Command& command =
      line.command("serve", "serve a model over HTTP with OpenAI's API and a web page");
  add_model_options(command, options->model);
  add_weights_option(command, options->model);
  add_layout_options(command, options->layout);
  add_cuda_graph_option(command, options->engine.cuda_graph);
  add_chat_template_option(command, options->model)
      .option("--host", &options->host, "ADDRESS",
              "address to listen on; an address other than loopback needs a token")
      .option("--port", &options->port, "N", "port to listen on; 0: any free port")
      .option("--token", &options->token, "TEXT",
              "bearer token that requests must send; other users of this machine can see it in the "
              "process list")
      .option("--token-file", &options->token_file, "FILE", "file that contains the bearer token")
      .option("--cors-origin", &options->cors_origins, "ORIGIN",
              "origin of web pages that may use the server, may be repeated; *: all origins")
      .option("--model-name", &options->model_name, "NAME",
              "model name in requests; default: the directory name")
      .option("--max-batch", &options->engine.max_batch, "N", "number of answers generated at once")
      .option("--max-queue", &options->engine.max_queue, "N",
              "number of waiting requests; further requests get HTTP status 429")
      .option("--max-context", &options->engine.max_context, "N",
              "maximum number of tokens of prompt and answer; 0: that of the model")
      .option("--kv-cache-mib", &options->engine.kv_cache_mib, "N",
              "size of the KV cache in MiB; 0: automatic")
      .option("--request-timeout-s", &options->request_timeout_s, "S",
              "seconds after which a request ends with HTTP status 408")
      .option("--drain-s", &options->drain_s, "S",
              "seconds that running answers have to finish after SIGTERM")
      .example("trireme serve --checkpoint runs/sft")
      .example(
          "trireme serve --checkpoint hf/model --host 0.0.0.0 --port 8000 --token-file token.txt")
      .example("mpirun -n 2 trireme serve --checkpoint runs/sft --parallel.tp 2")
      .example("mpirun -n 4 trireme serve --checkpoint hf/model --parallel.tp 2 --parallel.pp 2")
      .ranks(config::Ranks::all)
      .run([options, &launch] { return run(*options, launch); });
}

}  // namespace trireme
