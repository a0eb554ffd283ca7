#include "bin/trireme/chat/chat_command.hpp"

#include <cstdio>

#include "bin/trireme/chat/chat_talk.hpp"
#include "bin/trireme/model_options.hpp"
#include "core/escape.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"
#include "core/terminal/interrupts.hpp"
#include "core/terminal/line_reader.hpp"
#include "core/terminal/terminal.hpp"
#include "generate/sampling.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {

ChatCommand::ChatCommand(CommandLine& line) {
  engine_.max_batch = 1;
  Command& command = line.command("chat", "talk with a trained model in the terminal");
  add_model_options(command, model_);
  add_chat_template_option(command, model_)
      .option("--system", &system_, "TEXT", "what the model is told first")
      .option("--thinking", &thinking_, "auto|on|off",
              "thoughts before an answer; auto: as its chat format has it")
      .flag("--show-thoughts", settings_.show_thoughts,
            "print them instead of one line that stands for them")
      .option("--max-tokens", &settings_.max_tokens, "N", "most tokens of an answer");
  add_draw_options(command, settings_.sampling)
      .option("--seed", &settings_.sampling.seed, "N",
              "of the draws; all settings: /set in the chat")
      .option("--history", &history_, "FILE", "keeps the lines that were typed, for the next time")
      .option("--kv-cache-mib", &engine_.kv_cache_mib, "N",
              "memory for keys and values; 0: as much as the longest conversation needs")
      .example("trireme chat --checkpoint runs/sft")
      .example("echo \"Who are you?\" | trireme chat --checkpoint runs/sft --temperature 0")
      .run([this] { return run(); });
}

int ChatCommand::run() {
  settings_.thinking = read_thinking(thinking_);
  settings_.check();
  const bool is_utf8 = use_utf8_locale();
  const auto model = load_model(model_);
  GenerationEngine engine(*model->transformer, model->tokenizer, engine_);

  const Terminals there = terminals();
  const bool on_terminal = there.input && there.output;
  ChatTalk talk(*model, engine, settings_, system_, on_terminal);
  LineReader reader({.history = history_, .commands = ChatTalk::commands()});
  std::optional<CatchInterrupts> interrupts;  // where nobody types, Ctrl-C ends the program
  if (there.input) interrupts.emplace();
  if (on_terminal) {
    print(formatted("{}: /help lists commands, Ctrl-C stops an answer, Ctrl-D ends\n",
                    model->checkpoint.string()));
    if (!is_utf8) log::warn("no UTF-8 locale on this system: wide characters are edited wrongly");
  }
  return run(talk, reader, there.input);
}

int ChatCommand::run(ChatTalk& talk, LineReader& reader, bool someone_types) {
  for (std::string line;;) {
    const LineReader::Result result = reader.read(talk.is_open() ? ". " : "> ", line);
    const bool is_over = result == LineReader::Result::end;
    if (is_over && (someone_types || !talk.is_open())) return kExitDone;
    try {
      if (is_over)
        talk.end_open();
      else if (result == LineReader::Result::interrupt)
        talk.drop_open();
      else if (check_utf8(line, "standard input"); !talk.take(line))
        return kExitDone;
    } catch (const Error& error) {
      // Whoever types can do better in the next line; a script cannot.
      const bool mendable = error.kind() == ErrorKind::usage || error.kind() == ErrorKind::data;
      if (!someone_types || !mendable) throw;
      std::fflush(stdout);
      std::fputs(cat(escape_controls(error.what()), "\n").c_str(), stderr);
    }
  }
}

}  // namespace trireme
