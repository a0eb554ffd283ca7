#include "bin/trireme/dpo_reference_command.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "checkpoint/reference/reference_scores.hpp"
#include "checkpoint/upkeep/newest.hpp"
#include "checkpoint/upkeep/verify.hpp"
#include "comm/agree.hpp"
#include "core/process/run_main.hpp"
#include "data/order/samples.hpp"
#include "data/shards/schema.hpp"
#include "objective/score_table.hpp"
#include "parallel/device.hpp"
#include "serve/load_model.hpp"
#include "train/step/microbatches.hpp"

namespace trireme {

DpoReferenceCommand::DpoReferenceCommand(CommandLine& line, Launch& launch) : launch_(launch) {
  line.command("dpo-reference", "what a frozen model says of every pair, for dpo.reference")
      .option("--init", &init_, "CHECKPOINT", "the reference: a checkpoint or a run's folder",
              Need::required)
      .option("--data", &data_, "SET", "token set of kind dpo", Need::required)
      .option("--output", &output_, "DIR", "folder to write", Need::required)
      .option("--batch", &batch_, "N", "pairs of one forward pass")
      .option("--seq-len", &seq_len_, "N", "train.seq_len of the runs to come; 0: the set's own")
      .option("--device", &device_, "auto|cpu|cuda", "where it runs")
      .option("--precision", &precision_, "fp32|bf16|fp16|fp64",
              "of the weights: that of the runs to come")
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
  std::optional<TokenSet> set;
  std::optional<SampleSet> pairs;
  const auto model = all_or_none(world, [&] {
    auto loaded = load_model(init_, precision_dtypes(precision_),
                             choose_device(device_, launch_.info().local_rank));
    set.emplace(TokenSet::open(data_));
    if (set->kind() != schema::kKindDpo) {
      fail(ErrorKind::usage, "--data {} is of kind {}, {} is needed", data_, set->kind(),
           schema::kKindDpo);
    }
    if (set->manifest().tokenizer_hash != loaded->tokenizer.content_hash()) {
      fail(ErrorKind::usage, "--data {} was packed with another tokenizer than that of {}", data_,
           init_);
    }
    pairs.emplace(*set, seq_len_ == 0 ? set->seq_len() : seq_len_);
    return loaded;
  });
  Transformer& transformer = *model->transformer;
  const auto total = static_cast<std::int64_t>(pairs->size());
  const SampleOrder in_file_order(pairs->size(), 0, /*shuffle=*/false);
  ScoreTable table(static_cast<std::int64_t>(set->num_documents()));
  all_or_none(world, [&] {
    for (std::int64_t first = world.rank() * batch_; first < total;
         first += world.size() * batch_) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch_, total - first)));
      std::iota(indices.begin(), indices.end(), first);
      const Microbatch batch =
          to_microbatch(pairs->make_batch(indices, in_file_order), transformer.registry().device(),
                        /*step=*/0, /*training=*/false);
      const Head head = head_of(transformer.registry(), transformer.head_weight(),
                                transformer.tensor(), ops::Path::fast);
      table.put(batch, sequence_scores(batch, transformer.hidden(batch), head, {}));
    }
  });
  table.gather(world);
  const std::string weights = hash_tensors(open_newest_good(init_, world), world, "param/");
  all_or_none(world, [&] {
    if (world.rank() != 0) return;
    save_reference(
        output_, {{set->content_hash(), pairs->seq_len(), weights}, table.sums(), table.counts()});
    print(formatted("{}: {} pairs -> {}\n", data_, total, output_));
  });
  return kExitDone;
}

}  // namespace trireme
