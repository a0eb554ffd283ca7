#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data_prep/documents/chat_options.hpp"
#include "data_prep/pack/pack.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme {

void add_pack_command(CommandLine& commands, const DataProgram& program) {
  struct Options {
    PackConfig config;
    std::string tokenizer;
    std::string on_bad_text = "error";
    std::string progress = "auto";
    std::int64_t max_bad = -1;
    ChatOptions chat;
  };

  const auto options = std::make_shared<Options>();
  PackConfig& config = options->config;
  Command& command = commands.command(
      "pack", "jsonl to a folder of token shards; the same command again goes on after a kill");
  command
      .option("--kind", &config.kind, "pretrain|sft|dpo",
              "what the lines are: pretrain ({\"text\"}), sft ({\"conversations\"}) or dpo "
              "({\"chosen\", \"rejected\"})")
      .option("--tokenizer", &options->tokenizer, "DIR|FILE", "tokenizer folder or tokenizer.json",
              Need::required)
      .option("--input", &config.inputs, "FILE...",
              "jsonl, plain or as .gz or .zst: files, folders, patterns; in order", Need::required)
      .option("--seq-len", &config.seq_len, "L",
              "sequence length to prepare; training at another one works as well")
      .option("--output", &config.output, "DIR", "folder: new, empty, or of the same pack",
              Need::required)
      .option("--field", &config.field, "NAME", "pretrain: field that holds the text")
      .option("--bos", &config.bos, "true|false",
              "pretrain: begin token before each document, if the tokenizer has one (default true)")
      .option("--eos", &config.eos, "true|false",
              "pretrain: end token after each document, if the tokenizer has one (default true)")
      .option("--special-in-text", &config.special_in_text, "allow|text",
              "pretrain: added tokens inside a text are matched, or plain characters")
      .option("--on-bad-text", &options->on_bad_text, "error|skip|replace",
              "lone surrogates and invalid UTF-8")
      .option("--max-bad", &options->max_bad, "N",
              "fail past this many bad lines; -1: any number, they are counted and listed")
      .option("--unit-bytes", &config.unit_bytes, "BYTES",
              "of input to one shard; decides the shards")
      .option("--threads", &config.threads, "N", "0: all processors at hand")
      .option("--schedule", &config.schedule, "dynamic|static",
              "units to ranks: to whoever is free, or a fixed share each")
      .option("--progress", &options->progress, "auto|bar|log|none", "how progress is shown")
      .example(
          "trireme-data pack --kind pretrain --tokenizer tok --input corpus.jsonl --seq-len 512 "
          "--output data/train")
      .example(
          "mpirun -n 8 trireme-data pack --tokenizer tok --input part-*.jsonl --seq-len 2048 "
          "--output data/train --threads 1")
      .example(
          "trireme-data pack --kind sft --template minimind-v3 --tokenizer tok --input sft.jsonl "
          "--seq-len 2048 --output data/sft");
  add_chat_options(command, options->chat);
  command.run([options, &program] {
    PackConfig& asked = options->config;
    asked.chat = resolve_chat_options(options->chat);
    asked.on_bad_text = parse_on_bad_text(options->on_bad_text);
    asked.progress = parse_progress_mode(options->progress);
    if (options->max_bad < -1)
      fail(ErrorKind::usage, "--max-bad {}, must be -1 or more", options->max_bad);
    if (options->max_bad >= 0) asked.max_bad = options->max_bad;
    catch_stop_signals();
    const PackReport report = pack(asked, options->tokenizer, &program.world());
    if (report.left != 0) {
      if (program.rank() == 0) {
        log::info(formatted(
            "stopped on request: {} of {} shards are still to be made or compared with the inputs; the same command goes on",
            report.left, report.units));
      }
      return kExitStopped;
    }
    if (program.rank() == 0) {
      log::info(formatted("{}: {} shards, {} of them kept from before, in {}{}", asked.output,
                          report.units, report.kept, format_duration(report.seconds),
                          report.losses.empty() ? "; nothing was cut, dropped or left out" : ""));
      for (const Loss& loss : report.losses)
        loss.level == log::Level::warn ? log::warn(loss.text) : log::info(loss.text);
    }
    return kExitDone;
  });
}

}  // namespace trireme
