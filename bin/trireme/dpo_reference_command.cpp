#include "bin/trireme/dpo_reference_command.hpp"

#include <array>
#include <optional>

#include "checkpoint/reference/reference_scores.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "checkpoint/upkeep/model_place.hpp"
#include "comm/agree.hpp"
#include "core/process/run_main.hpp"
#include "generate/load_model.hpp"
#include "parallel/device.hpp"
#include "train/eval/set_scores.hpp"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 1> kReferenceKinds{"dpo"};

}  // namespace

DpoReferenceCommand::DpoReferenceCommand(CommandLine& line, Launch& launch) : launch_(launch) {
  line.command("dpo-reference", "what a frozen model says of every pair, for dpo.reference")
      .option("--init", &init_, "MODEL", cat("the reference: a ", kModelPlaceHelp), Need::required)
      .option("--data", &data_, "SET", "token set of kind dpo", Need::required)
      .option("--output", &output_, "DIR", "folder to write", Need::required)
      .option("--batch", &batch_, "N", "pairs of one forward pass")
      .option("--seq-len", &seq_len_, "N", "train.seq_len of the runs to come; 0: the set's own")
      .option("--device", &device_, "auto|cpu|cuda", "where it runs")
      .option("--precision", &precision_, "fp32|bf16|fp16|fp64",
              "of the weights: that of the runs to come")
      .flag("--allow-other-template", allow_other_template_, kAllowOtherTemplateHelp)
      .example("mpirun -n 2 trireme dpo-reference --init runs/sft --data sets/pairs --output ref")
      .example("trireme dpo --init runs/sft --data sets/pairs --dpo.reference ref --run runs/dpo")
      .ranks(Ranks::all)
      .run([this] { return run(); });
}

int DpoReferenceCommand::run() {
  if (batch_ < 1) fail(ErrorKind::usage, "--batch {}, must be 1 or more", batch_);
  if (seq_len_ != 0 && seq_len_ < 2)
    fail(ErrorKind::usage, "--seq-len {}, must be 2 or more", seq_len_);
  Communicator& world = launch_.world();
  set_cpu_threads(0, launch_.info().local_size);
  std::optional<ScoredSet> pairs;
  const auto model = all_or_none(world, [&] {
    auto loaded = load_model(init_, precision_dtypes(precision_, "--precision"),
                             choose_device(device_, launch_.info().local_rank, "--device"));
    pairs.emplace(data_, kReferenceKinds, seq_len_, *loaded->transformer, loaded->tokenizer);
    check_same_template({cat("--data ", data_), pairs->set.manifest().chat_template(),
                         loaded->checkpoint.string(), loaded->chat_template_name},
                        allow_other_template_);
    return loaded;
  });
  const ScoreTable table = score_pairs(*model->transformer, *pairs, batch_, ops::Path::fast, world);
  const std::string weights = hash_model(model->checkpoint, world);
  all_or_none(world, [&] {
    if (world.rank() != 0) return;
    save_reference(output_,
                   {{pairs->set.content_hash(), pairs->samples.seq_len(), weights, precision_},
                    table.sums(),
                    table.counts()});
    print(formatted("{}: {} pairs -> {}\n", data_, pairs->samples.size(), output_));
  });
  return kExitDone;
}

}  // namespace trireme
