#include "bin/trireme/dpo_reference_command.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "checkpoint/reference/reference_scores.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "checkpoint/upkeep/model_place.hpp"
#include "comm/agree.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"
#include "data/order/length_warning.hpp"
#include "data/order/plan.hpp"
#include "objective/preference_loss.hpp"
#include "parallel/device.hpp"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 1> kReferenceKinds{"dpo"};

/// The scores of one data set, in file order.
ReferenceSet reference_set(const ScoredSet& pairs, const std::vector<PairScore>& scores) {
  ReferenceSet set{.name = pairs.set.folder().string(),
                   .content_xxh3 = pairs.set.content_hash(),
                   .seq_len = pairs.samples.seq_len()};
  for (const PairScore& score : scores) {
    set.documents.push_back(score.document);
    set.keys.push_back(score.key);
    set.sums.insert(set.sums.end(), score.sums.begin(), score.sums.end());
    set.counts.insert(set.counts.end(), score.counts.begin(), score.counts.end());
  }
  return set;
}

}  // namespace

DpoReferenceCommand::DpoReferenceCommand(CommandLine& line, Launch& launch) : launch_(launch) {
  line.command("dpo-reference", "precompute reference log-probabilities for dpo.reference")
      .option("--init", &init_, "MODEL", cat("the reference: a ", kModelPlaceHelp), Need::required)
      .option("--data", &data_, "SET",
              "data.path of the runs to come: a token set of kind dpo or a blend; all pairs are "
              "scored, so that any data.split finds its own",
              Need::required)
      .option("--data.valid_path", &valid_path_, "SET", "data.valid_path of the runs to come")
      .option("--output", &output_, "DIR", "folder to write", Need::required)
      .option("--batch", &batch_, "N", "pairs of one forward pass")
      .option("--seq-len", &seq_len_, "N",
              "train.seq_len of the runs to come; 0: that of the first set")
      .option("--dpo.score", &score_, "all|answer", "dpo.score of the runs to come")
      .option("--device", &device_, "auto|cpu|cuda", "where it runs")
      .option("--precision", &precision_, "fp32|bf16|fp16|fp64",
              "of the weights: that of the runs to come")
      .flag("--allow-other-template", allow_other_template_, kAllowOtherTemplateHelp)
      .example("mpirun -n 2 trireme dpo-reference --init runs/sft --data sets/pairs --output ref")
      .example(
          "trireme dpo-reference --init runs/sft --data sets/pairs --data.valid_path sets/held-out "
          "--output ref")
      .example("trireme dpo --init runs/sft --data sets/pairs --dpo.reference ref --run runs/dpo")
      .ranks(Ranks::all)
      .run([this] { return run(); });
}

void DpoReferenceCommand::check() const {
  if (batch_ < 1) fail(ErrorKind::usage, "--batch {}, must be 1 or more", batch_);
  if (seq_len_ != 0 && seq_len_ < 2)
    fail(ErrorKind::usage, "--seq-len {}, must be 2 or more", seq_len_);
  if (std::find(kPairScores.begin(), kPairScores.end(), score_) == kPairScores.end())
    fail(ErrorKind::usage, "--dpo.score {}, must be all or answer", score_);
  refuse_texts(valid_path_, "data.valid_path", kReferenceKinds, seq_len_);
  refuse_blend(valid_path_, "data.valid_path");
}

std::vector<std::unique_ptr<ScoredSet>> DpoReferenceCommand::open_sets(
    const LoadedModel& model) const {
  std::vector<std::unique_ptr<ScoredSet>> sets;
  std::set<std::pair<std::string, std::int64_t>> known;  // content and length
  const auto open = [&](const std::string& folder, std::int64_t seq_len) {
    auto opened = std::make_unique<ScoredSet>(folder, kReferenceKinds, seq_len, *model.transformer,
                                              model.tokenizer, score_ == "answer");
    if (known.emplace(opened->set.content_hash(), opened->samples.seq_len()).second)
      sets.push_back(std::move(opened));
  };
  std::int64_t seq_len = seq_len_;
  for (const PlanPhase& phase : read_plan(data_, "--data", kReferenceKinds, seq_len_)) {
    for (const PlanSource& source : phase.sources) {
      for (const std::string& folder : source.folders) {
        open(folder, phase.seq_len != 0 ? phase.seq_len : seq_len);
        if (seq_len == 0) seq_len = sets.front()->set.seq_len();
      }
    }
  }
  if (!valid_path_.empty()) open(valid_path_, seq_len);
  return sets;
}

int DpoReferenceCommand::run() {
  check();
  Communicator& world = launch_.world();
  set_cpu_threads(0, launch_.info().local_size);
  std::vector<std::unique_ptr<ScoredSet>> sets;
  const auto model = all_or_none(world, [&] {
    auto loaded = load_model(init_, precision_dtypes(precision_, "--precision"),
                             choose_device(device_, launch_.info().local_rank, "--device"));
    sets = open_sets(*loaded);
    for (const auto& pairs : sets) {
      check_same_template(
          {cat("--data ", pairs->set.folder().string()), pairs->set.manifest().chat_template(),
           loaded->checkpoint.string(), loaded->chat_template_name},
          allow_other_template_);
    }
    return loaded;
  });
  ReferenceTable table;
  table.origin.weights_sha256 = hash_model(model->checkpoint, world);
  table.origin.precision = precision_;
  table.origin.score = score_;
  std::string text;
  for (const auto& pairs : sets) {
    if (world.rank() == 0) {
      const std::string lost = length_warning(pairs->samples, "--seq-len");
      if (!lost.empty()) log::warn(lost);
    }
    const auto scores =
        score_pairs(*model->transformer, pairs->samples, batch_, ops::Path::fast, world);
    table.sets.push_back(reference_set(*pairs, scores));
    text += formatted("{}: {} pairs -> {}\n", pairs->set.folder().string(), pairs->samples.size(),
                      output_);
  }
  all_or_none(world, [&] {
    if (world.rank() != 0) return;
    save_reference(output_, table);
    print(text);
  });
  return kExitDone;
}

}  // namespace trireme
