#include "bin/trireme_data/commands.hpp"
#include "comm/launchers.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data_prep/pack/pack.hpp"
#include "data_prep/stop_signals.hpp"

namespace trireme {
namespace {

void say(const std::string& output, const data_prep::PackReport& report) {
  if (report.left != 0) {
    log::info(formatted(
        "stopped on request: {} of {} shards are not yet written or compared with the inputs. Run the same command again to continue; {}",
        report.left, report.partitions, comm::stopped_code_text(comm::launcher_variables())));
    return;
  }
  if (report.missing_of_others != 0) {
    log::info(formatted(
        "{}: this part is done; {} of {} shards, of other parts, are missing. The last part completes the data set",
        output, report.missing_of_others, report.partitions));
    return;
  }
  log::info(formatted(
      "{}: {}, {} of them kept from an earlier start, in {}{}", output,
      counted(report.partitions, "shard"), report.kept, format_duration(report.seconds),
      report.losses.empty() && report.kept == 0 ? "; nothing was cut, dropped or left out" : ""));
  for (const data_prep::Loss& loss : report.losses)
    loss.level == log::Level::warn ? log::warn(loss.text) : log::info(loss.text);
}

}  // namespace

void add_pack_command(config::CommandLine& line, comm::Launch& launch) {
  config::Command& command = line.command(
      "pack",
      "tokenize JSON Lines or JSON arrays into token shards; run it again to continue after an "
      "interruption");
  const auto config = command.settings<data_prep::PackConfig>("pack", config::SettingsFile::toml);
  command
      .example(
          "trireme-data pack --tokenizer tok --input corpus.jsonl --seq-len 512 "
          "--output data/train")
      .example(
          "mpirun -n 8 trireme-data pack --tokenizer tok --input part-*.jsonl "
          "--output data/train --threads 1")
      .example(
          "trireme-data pack --kind sft --template minimind-v3 --tokenizer tok --input a.jsonl "
          "--output sft")
      .example(
          "trireme-data pack --config sft.toml --format alpaca --input a.json --output data/alpaca")
      .example("trireme-data pack --tokenizer tok --input corpus --output data/train --part 2/4")
      .example("trireme-data pack --config sft.toml --seq-len 4096 --output data/sft4k")
      .ranks(config::Ranks::all)
      .run([config, &launch] {
        comm::Communicator& world = launch.world();
        data_prep::catch_stop_signals();
        const data_prep::PackReport report = data_prep::pack(*config, &world);
        if (world.rank() == 0) say(config->output, report);
        return report.left != 0 ? kExitStopped : kExitDone;
      });
}

}  // namespace trireme
