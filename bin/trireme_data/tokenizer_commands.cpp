#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {

void add_tokenizer_train_command(config::CommandLine& line, comm::Launch& launch) {
  config::Command& command =
      line.command("tokenizer train", "train a byte-level BPE tokenizer on JSON Lines");
  const auto config = command.settings<data_prep::TrainTokenizerConfig>("tokenizer_train");
  command
      .example("trireme-data tokenizer train --input corpus.jsonl --vocab-size 6400 --output tok")
      .ranks(config::Ranks::all)
      .run([config, &launch] {
        data_prep::train_tokenizer(*config, &launch.world());
        return kExitDone;
      });
}

void add_tokenizer_encode_command(config::CommandLine& line) {
  config::Command& command =
      line.command("tokenizer encode", "encode the texts of a JSON Lines file as token ids");
  const auto config = command.settings<data_prep::EncodeConfig>("tokenizer_encode");
  command
      .example(
          "trireme-data tokenizer encode --tokenizer tok --input corpus.jsonl --field text "
          "--output ids.jsonl")
      .run([config] {
        data_prep::encode_file(*config);
        return kExitDone;
      });
}

void add_tokenizer_decode_command(config::CommandLine& line) {
  config::Command& command =
      line.command("tokenizer decode", "decode the token ids of a JSON Lines file to text");
  const auto config = command.settings<data_prep::DecodeConfig>("tokenizer_decode");
  command
      .example(
          "trireme-data tokenizer decode --tokenizer tok --input ids.jsonl --output texts.jsonl")
      .run([config] {
        data_prep::decode_file(*config);
        return kExitDone;
      });
}

}  // namespace trireme
