#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {
namespace {

void add_encode(CommandLine& commands, const DataProgram& program) {
  struct Options {
    EncodeConfig config;
    bool add_special_tokens = true;
    std::string special_in_text = "allow";
    std::string on_bad_text = "error";
  };

  const auto options = std::make_shared<Options>();
  commands.command("tokenizer encode", "texts of a jsonl file to token ids")
      .option("--tokenizer", &options->config.tokenizer, "DIR|FILE",
              "tokenizer folder or tokenizer.json", Need::required)
      .option("--input", &options->config.input, "FILE", "jsonl file", Need::required)
      .option("--output", &options->config.output, "FILE", "one {\"ids\":[...]} a line, same order",
              Need::required)
      .option("--field", &options->config.field, "NAME", "field that holds the text")
      .option("--add-special-tokens", &options->add_special_tokens, "true|false",
              "what the tokenizer's post-processor puts around a text (default true)")
      .option("--special-in-text", &options->special_in_text, "allow|text",
              "added tokens inside a text: matched, or plain characters")
      .option("--on-bad-text", &options->on_bad_text, "error|replace",
              "lone surrogates and invalid UTF-8")
      .option("--threads", &options->config.threads, "N", "0: all processors at hand")
      .example(
          "trireme-data tokenizer encode --tokenizer tok --input corpus.jsonl --field text "
          "--output ids.jsonl")
      .run([options, &program] {
        if (options->special_in_text != "allow" && options->special_in_text != "text") {
          fail(ErrorKind::usage, "--special-in-text {}, must be allow or text",
               options->special_in_text);
        }
        options->config.add_special_tokens = options->add_special_tokens;
        options->config.match_added_tokens = options->special_in_text == "allow";
        options->config.on_bad_text = parse_on_bad_text(options->on_bad_text);
        if (program.rank() == 0) encode_file(options->config);
        return kExitDone;
      });
}

void add_decode(CommandLine& commands, const DataProgram& program) {
  struct Options {
    std::string tokenizer, input, output;
    bool skip_special = false;
  };

  const auto options = std::make_shared<Options>();
  commands.command("tokenizer decode", "token ids of a jsonl file to texts")
      .option("--tokenizer", &options->tokenizer, "DIR|FILE", "tokenizer folder or tokenizer.json",
              Need::required)
      .option("--input", &options->input, "FILE", "one {\"ids\":[...]} a line", Need::required)
      .option("--output", &options->output, "FILE", "one {\"text\":...} a line, same order",
              Need::required)
      .flag("--skip-special", options->skip_special, "leave special tokens out of the text")
      .example(
          "trireme-data tokenizer decode --tokenizer tok --input ids.jsonl --output texts.jsonl")
      .run([options, &program] {
        if (program.rank() == 0)
          decode_file(options->tokenizer, options->input, options->output, options->skip_special);
        return kExitDone;
      });
}

}  // namespace

void add_tokenizer_commands(CommandLine& commands, const DataProgram& program) {
  commands.group("tokenizer", "learn a tokenizer, and use it");
  add_train_command(commands, program);
  add_encode(commands, program);
  add_decode(commands, program);
}

}  // namespace trireme
