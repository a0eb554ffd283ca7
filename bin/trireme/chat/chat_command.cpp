#include <cstdio>

#include "bin/trireme/chat/chat_session.hpp"
#include "bin/trireme/chat/chat_settings.hpp"
#include "bin/trireme/commands.hpp"
#include "bin/trireme/model_options.hpp"
#include "core/escape.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"
#include "core/terminal/interrupts.hpp"
#include "core/terminal/line_reader.hpp"
#include "core/terminal/terminal.hpp"
#include "generate/engine_config.hpp"
#include "generate/load/load_model.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {
namespace {

struct ChatOptions {
  generate::ModelOptions model;
  std::string system;
  std::string thinking = "auto";
  std::string history;
  ChatSettings settings;
  generate::EngineConfig engine;
};

/// Processes lines until the user leaves. Returns the exit code.
int talk_with(ChatSession& talk, LineReader& reader, bool someone_types) {
  for (std::string line;;) {
    const LineReader::Result result = reader.read(talk.is_open() ? ". " : "> ", line);
    const bool is_over = result == LineReader::Result::end;
    if (is_over && (someone_types || !talk.is_open())) return kExitDone;
    try {
      if (is_over)
        talk.end_open();
      else if (result == LineReader::Result::interrupt)
        talk.drop_open();
      else if (text::check_utf8(line, "standard input"); !talk.take(line))
        return kExitDone;
    } catch (const Error& error) {
      // A user can correct the mistake in the next line; a script cannot.
      const bool mendable = error.kind() == ErrorKind::usage || error.kind() == ErrorKind::data;
      if (!someone_types || !mendable) throw;
      std::fflush(stdout);
      std::fputs(cat(escape_controls(error.what()), "\n").c_str(), stderr);
    }
  }
}

int run(ChatOptions& options) {
  options.settings.thinking = read_thinking(options.thinking);
  options.settings.check();
  generate::check_cuda_graph(options.engine.cuda_graph);
  const bool is_utf8 = use_utf8_locale();
  const auto model = generate::load_model(options.model);
  generate::GenerationEngine engine(*model->transformer, model->tokenizer, options.engine);

  const Terminals there = terminals();
  const bool on_terminal = there.input && there.output;
  ChatSession talk(*model, engine, options.settings, options.system, on_terminal);
  LineReader reader({.history = options.history, .commands = ChatSession::commands()});
  std::optional<CatchInterrupts> interrupts;  // without a terminal, Ctrl-C ends the program
  if (there.input) interrupts.emplace();
  if (on_terminal) {
    print(formatted("{}: /help lists commands, Ctrl-C stops an answer, Ctrl-D ends\n",
                    model->checkpoint.string()));
    if (!is_utf8)
      log::warn("this system has no UTF-8 locale: line editing of wide characters does not work");
  }
  return talk_with(talk, reader, there.input);
}

}  // namespace

void add_chat_command(config::CommandLine& line) {
  const auto options = std::make_shared<ChatOptions>();
  options->engine.max_batch = 1;
  config::Command& command = line.command("chat", "talk with a trained model in the terminal");
  add_model_options(command, options->model);
  add_weights_option(command, options->model);
  add_cuda_graph_option(command, options->engine.cuda_graph);
  add_chat_template_option(command, options->model)
      .option("--system", &options->system, "TEXT", "system prompt")
      .option("--thinking", &options->thinking, "auto|on|off",
              "thoughts before an answer; auto: default of the chat format")
      .flag("--show-thoughts", options->settings.show_thoughts,
            "print the thoughts instead of one summary line")
      .option("--max-tokens", &options->settings.max_tokens, "N",
              "maximum number of tokens of an answer");
  add_draw_options(command, options->settings.sampling)
      .option("--seed", &options->settings.sampling.seed, "N",
              "random seed for sampling; /set in the chat shows all settings")
      .option("--history", &options->history, "FILE",
              "file that keeps the typed lines for the next chat")
      .option("--kv-cache-mib", &options->engine.kv_cache_mib, "N",
              "size of the KV cache in MiB; 0: as much as the longest conversation needs")
      .example("trireme chat --checkpoint runs/sft")
      .example("echo \"Who are you?\" | trireme chat --checkpoint runs/sft --temperature 0")
      .run([options] { return run(*options); });
}

}  // namespace trireme
