#include "bin/trireme/serve_command.hpp"

#include <cstdio>

#include "bin/trireme/model_options.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"

namespace trireme {

ServeCommand::ServeCommand(CommandLine& line) {
  Command& command =
      line.command("serve", "answer requests with a model: OpenAI's API and a web page");
  add_model_options(command, options_.model);
  add_chat_template_option(command, options_.model)
      .option("--host", &options_.host, "ADDRESS",
              "where it listens; another one than this machine's own needs a token")
      .option("--port", &options_.port, "N", "0: any free one")
      .option(
          "--token", &options_.token, "TEXT",
          "what requests must have as Authorization: Bearer TEXT; others on this machine see it "
          "in the list of processes")
      .option("--token-file", &options_.token_file, "FILE", "or: the file that holds it")
      .option("--model-name", &options_.model_name, "NAME",
              "what requests call the model; the folder's name")
      .option("--max-batch", &options_.engine.max_batch, "N", "answers that are made at once")
      .option("--max-queue", &options_.engine.max_queue, "N", "answers that wait; more get 429")
      .option("--max-context", &options_.engine.max_context, "N",
              "most tokens of prompt and answer together; 0: the model's")
      .option("--kv-cache-mib", &options_.engine.kv_cache_mib, "N",
              "memory for keys and values; 0: chosen")
      .option("--request-timeout-s", &options_.request_timeout_s, "S",
              "a request that takes longer ends with 408")
      .option("--drain-s", &options_.drain_s, "S",
              "after SIGTERM, what answers under way have to end")
      .example("trireme serve --checkpoint runs/sft")
      .example(
          "trireme serve --checkpoint hf/model --host 0.0.0.0 --port 8000 --token-file token.txt")
      .run([this] { return run(); });
}

int ServeCommand::run() const {
  serve(options_, [](const std::string& url) {
    print(url + "\n");
    if (std::fflush(stdout) != 0)
      fail(ErrorKind::resource, "cannot write standard output, which should have the URL");
  });
  return kExitDone;
}

}  // namespace trireme
