#include <algorithm>
#include <set>
#include <utility>

#include "bin/trireme/commands.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "checkpoint/reference/reference_scores.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "core/counted.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"
#include "data/order/length_warning.hpp"
#include "data/order/plan.hpp"
#include "data/shards/set_content.hpp"
#include "device/device.hpp"
#include "device/kernel_choice.hpp"
#include "generate/load/load_model.hpp"
#include "objective/preference_loss.hpp"
#include "text/chat/jinja_chat.hpp"
#include "text/chat/record_forms.hpp"
#include "train/eval/set_scores.hpp"

namespace trireme {
namespace {

/// Returns the kinds of data sets that hold pairs.
std::vector<std::string_view> pair_kinds() {
  std::vector<std::string_view> names;
  for (const text::RecordKind& kind : text::record_kinds())
    if (data::set_content(kind.name, kind.stored_as).has_pairs()) names.push_back(kind.name);
  return names;
}

/// Returns the scores of one data set in file order.
checkpoint::ReferenceSet reference_set(const train::ScoredSet& pairs,
                                       const std::vector<objective::PairScore>& scores) {
  checkpoint::ReferenceSet set{.name = pairs.set.directory().string(),
                               .content_xxh3 = pairs.set.content_hash(),
                               .seq_len = pairs.samples.seq_len()};
  for (const objective::PairScore& score : scores) {
    set.documents.push_back(score.document);
    set.keys.push_back(score.key);
    set.sums.insert(set.sums.end(), score.sums.begin(), score.sums.end());
    set.counts.insert(set.counts.end(), score.counts.begin(), score.counts.end());
  }
  return set;
}

struct DpoReferenceSettings {
  std::string init;
  std::string data;
  std::string valid_path;
  std::string score = "all";
  std::string output;
  std::int64_t batch = 4;
  std::int64_t seq_len = 0;
  std::string device = "auto";
  std::string precision = "fp32";
  bool allow_other_template = false;
};

void check(const DpoReferenceSettings& settings) {
  if (settings.batch < 1) fail(ErrorKind::usage, "--batch {}, must be 1 or more", settings.batch);
  if (settings.seq_len != 0 && settings.seq_len < 2)
    fail(ErrorKind::usage, "--seq-len {}, must be 2 or more", settings.seq_len);
  if (std::find(objective::kPairScores.begin(), objective::kPairScores.end(), settings.score) ==
      objective::kPairScores.end())
    fail(ErrorKind::usage, "--dpo.score {}, must be all or answer", settings.score);
  data::refuse_texts(settings.valid_path, "data.valid_path", pair_kinds(), settings.seq_len);
  data::refuse_blend(settings.valid_path, "data.valid_path");
}

/// Opens each data set once for each sequence length that a run of this data trains or validates
/// on.
std::vector<std::unique_ptr<train::ScoredSet>> open_sets(const DpoReferenceSettings& settings,
                                                         const generate::LoadedModel& model) {
  std::vector<std::unique_ptr<train::ScoredSet>> sets;
  std::set<std::pair<std::string, std::int64_t>> known;  // content and length
  const auto open = [&](const std::string& folder, std::int64_t seq_len) {
    auto opened =
        std::make_unique<train::ScoredSet>(folder, pair_kinds(), seq_len, *model.transformer,
                                           model.tokenizer, settings.score == "answer");
    if (known.emplace(opened->set.content_hash(), opened->samples.seq_len()).second)
      sets.push_back(std::move(opened));
  };
  std::int64_t seq_len = settings.seq_len;
  for (const data::PlanPhase& phase :
       data::read_plan(settings.data, "--data", pair_kinds(), settings.seq_len)) {
    for (const data::PlanSource& source : phase.sources) {
      for (const std::string& folder : source.folders) {
        open(folder, phase.seq_len != 0 ? phase.seq_len : seq_len);
        if (seq_len == 0) seq_len = sets.front()->set.seq_len();
      }
    }
  }
  if (!settings.valid_path.empty()) open(settings.valid_path, seq_len);
  return sets;
}

int run(const DpoReferenceSettings& settings, comm::Launch& launch) {
  check(settings);
  comm::Communicator& world = launch.world();
  device::set_cpu_threads(0, launch.info().local_size);
  std::vector<std::unique_ptr<train::ScoredSet>> sets;
  device::avoid_cudnn_attention();
  const auto model = comm::all_or_none(world, [&] {
    auto loaded = generate::load_model(
        settings.init, device::precision_dtypes(settings.precision, "--precision"),
        device::choose_device(settings.device, launch.info().local_rank, "--device"));
    sets = open_sets(settings, *loaded);
    for (const auto& pairs : sets) {
      checkpoint::check_same_template(
          {cat("--data ", pairs->set.directory().string()), pairs->set.manifest().chat_template(),
           loaded->checkpoint.string(), loaded->chat_template_name, loaded->jinja_name},
          settings.allow_other_template);
    }
    return loaded;
  });
  checkpoint::ReferenceTable table;
  table.origin.weights_sha256 = checkpoint::hash_model(model->checkpoint, world);
  table.origin.precision = settings.precision;
  table.origin.score = settings.score;
  std::string text;
  for (const auto& pairs : sets) {
    if (world.rank() == 0) {
      const std::string lost = data::length_warning(pairs->samples, "--seq-len");
      if (!lost.empty()) log::warn(lost);
    }
    const auto scores = train::score_pairs(*model->transformer, pairs->samples, settings.batch,
                                           ops::Path::fast, world);
    table.sets.push_back(reference_set(*pairs, scores));
    text +=
        formatted("{}: {} -> {}\n", pairs->set.directory().string(),
                  counted(pairs->samples.size(), pairs->set.contents().document), settings.output);
  }
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    checkpoint::save_reference(settings.output, table);
    print(text);
  });
  return kExitDone;
}

}  // namespace

void add_dpo_reference_command(config::CommandLine& line, comm::Launch& launch) {
  const auto settings = std::make_shared<DpoReferenceSettings>();
  line.command("dpo-reference", cat("precompute reference log-probabilities for data sets of kind ",
                                    joined(pair_kinds(), " and ")))
      .option("--init", &settings->init, "MODEL",
              cat("reference model: ", checkpoint::kModelPathHelp), config::Need::required)
      .option(
          "--data", &settings->data, "SET",
          cat("data.path of the runs: a token set of kind ", joined(pair_kinds(), " or "),
              ", or a blend; all preference pairs or answers are scored, so that every data.split "
              "works"),
          config::Need::required)
      .option("--data.valid_path", &settings->valid_path, "SET", "data.valid_path of the runs")
      .option("--output", &settings->output, "DIR", "directory to write", config::Need::required)
      .option("--batch", &settings->batch, "N", "preference pairs or answers in one forward pass")
      .option("--seq-len", &settings->seq_len, "N",
              "train.seq_len of the runs; 0: the sequence length of the first data set")
      .option("--dpo.score", &settings->score, "all|answer", "dpo.score of the DPO runs")
      .option("--device", &settings->device, "auto|cpu|cuda", "device to run on")
      .option("--precision", &settings->precision, "fp32|bf16|fp16|fp64",
              "precision of the weights; must be that of the runs")
      .flag("--allow-other-template", settings->allow_other_template,
            checkpoint::kAllowOtherTemplateHelp)
      .example("mpirun -n 2 trireme dpo-reference --init runs/sft --data sets/pairs --output ref")
      .example(
          "trireme dpo-reference --init runs/sft --data sets/pairs --data.valid_path sets/valid "
          "--output ref")
      .example("trireme dpo --init runs/sft --data sets/pairs --dpo.reference ref --run runs/dpo")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
