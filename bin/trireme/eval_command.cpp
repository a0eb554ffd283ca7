#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/eval_core.hpp"
#include "bin/trireme/model_options.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"
#include "core/progress.hpp"
#include "data/order/length_warning.hpp"
#include "data/order/plan.hpp"
#include "generate/load/load_model.hpp"
#include "text/chat/jinja_chat.hpp"
#include "train/eval/reward_model.hpp"
#include "train/eval/set_scores.hpp"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 2> kEvalKinds{"pretrain", "sft"};
constexpr std::array<std::string_view, 1> kRewardKinds{"dpo"};

void write_lines(const std::string& path, const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += json_line(line);
  write_file_atomic(path, text);
}

/// Returns the mean; null for a sequence without targets.
Json mean_of(double sum, std::int64_t count) {
  return count == 0 ? Json(nullptr) : Json(sum / static_cast<double>(count));
}

struct EvalSettings {
  generate::ModelOptions model;
  std::string reward;
  std::string data;
  std::string choices;
  std::string core;
  std::int64_t max_per_task = 0;
  std::string predictions;
  std::int64_t batch = 8;
  std::int64_t seq_len = 0;
  bool json = false;
  bool allow_other_template = false;
};

void check(const EvalSettings& settings) {
  if (settings.model.checkpoint.empty() == settings.reward.empty())
    fail(ErrorKind::usage, "give either --checkpoint MODEL or --reward MODEL");
  if (!settings.reward.empty() && (!settings.choices.empty() || !settings.core.empty()))
    fail(ErrorKind::usage, "--reward needs --data with preference pairs, but {} is given",
         settings.choices.empty() ? "--core" : "--choices");
  const std::array<bool, 3> given{!settings.data.empty(), !settings.choices.empty(),
                                  !settings.core.empty()};
  if (std::count(given.begin(), given.end(), true) != 1)
    fail(ErrorKind::usage, "give one of --data SET, --choices FILE and --core BUNDLE");
  if (settings.max_per_task < 0)
    fail(ErrorKind::usage, "--max-per-task is {}. It must be 1 or more, or 0 for all items",
         settings.max_per_task);
  if (settings.max_per_task > 0 && settings.core.empty())
    fail(ErrorKind::usage, "--max-per-task needs --core BUNDLE");
  if (!settings.data.empty()) data::refuse_blend(settings.data, "--data");
  if (settings.batch < 1) fail(ErrorKind::usage, "--batch {}, must be 1 or more", settings.batch);
  if (settings.seq_len != 0 && settings.seq_len < 2)
    fail(ErrorKind::usage, "--seq-len {}, must be 2 or more", settings.seq_len);
}

std::string text_of_set(const EvalSettings& settings,
                        const std::vector<train::SequenceScore>& scores) {
  const train::SetFigures figures = train::summarize(scores);
  if (!settings.predictions.empty()) {
    std::vector<Json> lines;
    for (const train::SequenceScore& one : scores) {
      lines.push_back({{"index", one.index},
                       {"loss", mean_of(one.loss_sum, one.num_targets)},
                       {"num_targets", one.num_targets},
                       {"num_correct", one.num_correct}});
    }
    write_lines(settings.predictions, lines);
  }
  if (!settings.json) {
    const std::string bits = std::isfinite(figures.bits_per_byte)
                                 ? formatted("{} bits per byte", figures.bits_per_byte)
                                 : "bits per byte unknown (no tokenizer)";
    return formatted("{}: loss {}, perplexity {}, {}, {} targets\n", settings.data, figures.loss,
                     figures.perplexity, bits, figures.num_targets);
  }
  return json_line({{"loss", figures.loss},
                    {"perplexity", figures.perplexity},
                    {"bits_per_byte", figures.bits_per_byte},
                    {"num_targets", figures.num_targets},
                    {"num_correct", figures.num_correct}});
}

std::string text_of_choices(const EvalSettings& settings,
                            const std::vector<train::ChoiceItem>& items,
                            const std::vector<train::ChoiceResult>& results) {
  std::int64_t right = 0;
  std::int64_t right_norm = 0;
  std::vector<Json> lines;
  for (std::size_t i = 0; i < items.size(); ++i) {
    right += results[i].choice == items[i].label ? 1 : 0;
    right_norm += results[i].choice_norm == items[i].label ? 1 : 0;
    lines.push_back({{"index", i},
                     {"scores", results[i].scores},
                     {"choice", results[i].choice},
                     {"label", items[i].label}});
  }
  if (!settings.predictions.empty()) write_lines(settings.predictions, lines);
  const auto share = [&](std::int64_t count) {
    return static_cast<double>(count) / static_cast<double>(items.size());
  };
  if (!settings.json) {
    return formatted("{}: acc {}, acc_norm {}, {} items\n", settings.choices, share(right),
                     share(right_norm), items.size());
  }
  return json_line(
      {{"acc", share(right)}, {"acc_norm", share(right_norm)}, {"num_items", items.size()}});
}

std::string text_of_rewards(const EvalSettings& settings,
                            const std::vector<train::PairReward>& rewards) {
  const train::RewardFigures figures = train::summarize(rewards);
  if (!settings.predictions.empty()) {
    std::vector<Json> lines;
    for (const train::PairReward& one : rewards)
      lines.push_back(
          {{"document", one.document}, {"chosen", one.chosen}, {"rejected", one.rejected}});
    write_lines(settings.predictions, lines);
  }
  if (!settings.json)
    return formatted("{}: accuracy {}, margin {}, {} pairs\n", settings.data, figures.accuracy,
                     figures.margin, figures.num_pairs);
  return json_line({{"accuracy", figures.accuracy},
                    {"margin", figures.margin},
                    {"num_pairs", figures.num_pairs}});
}

/// Evaluates a reward model on preference pairs.
int run_reward(const EvalSettings& settings, comm::Launch& launch) {
  comm::Communicator& world = launch.world();
  std::optional<train::ScoredSet> set;
  const auto model = comm::all_or_none(world, [&] {
    generate::ModelOptions options = settings.model;
    options.checkpoint = settings.reward;
    auto loaded = std::make_unique<train::RewardModel>(options, launch.info().local_rank,
                                                       launch.info().local_size);
    set.emplace(settings.data, kRewardKinds, settings.seq_len, *loaded->model().transformer,
                loaded->model().tokenizer);
    checkpoint::check_same_template(
        {cat("--data ", settings.data), set->set.manifest().chat_template(),
         loaded->model().checkpoint.string(), loaded->model().chat_template_name},
        settings.allow_other_template);
    return loaded;
  });
  const std::string lost = world.rank() == 0 ? data::length_warning(set->samples, "--seq-len") : "";
  if (!lost.empty()) log::warn(lost);
  const auto rewards = train::score_rewards(*model->model().transformer, model->head(),
                                            set->samples, settings.batch, world);
  comm::all_or_none(world, [&] {
    if (world.rank() == 0) print(text_of_rewards(settings, rewards));
  });
  return kExitDone;
}

int run(const EvalSettings& settings, comm::Launch& launch) {
  check(settings);
  if (!settings.reward.empty()) return run_reward(settings, launch);
  comm::Communicator& world = launch.world();
  std::optional<train::ScoredSet> set;
  std::vector<train::ChoiceItem> items;
  std::optional<text::Tokenizer> tokenizer_of_set;
  const auto model = comm::all_or_none(world, [&] {
    auto loaded =
        generate::load_model(settings.model, launch.info().local_rank, launch.info().local_size);
    if (settings.data.empty()) {
      if (loaded->tokenizer.is_ids_only()) {
        fail(ErrorKind::data,
             "{} has no tokenizer that can be read: the model takes token ids only, but {} has "
             "text. Give --data with a token set",
             loaded->checkpoint.string(), settings.core.empty() ? "--choices" : "--core");
      }
      if (settings.core.empty()) items = train::read_choices(settings.choices);
      return loaded;
    }
    set.emplace(settings.data, kEvalKinds, settings.seq_len, *loaded->transformer,
                loaded->tokenizer);
    checkpoint::check_same_template(
        {cat("--data ", settings.data), set->set.manifest().chat_template(),
         loaded->checkpoint.string(), loaded->chat_template_name, loaded->jinja_name},
        settings.allow_other_template);
    // A model without a tokenizer can be scored, too: the data set knows the bytes of each token.
    const auto files = set->set.tokenizer_files();
    if (loaded->tokenizer.is_ids_only() && files.contains("tokenizer.json"))
      tokenizer_of_set = text::Tokenizer::from_files(files, settings.data);
    return loaded;
  });
  std::string text;
  if (set) {
    const std::string lost =
        world.rank() == 0 ? data::length_warning(set->samples, "--seq-len") : "";
    if (!lost.empty()) log::warn(lost);
    const text::Tokenizer& tokenizer = tokenizer_of_set ? *tokenizer_of_set : model->tokenizer;
    const auto scores = train::score_set(*model->transformer, set->samples, tokenizer,
                                         settings.batch, ops::Path::fast, world);
    comm::all_or_none(world,
                      [&] { text = world.rank() == 0 ? text_of_set(settings, scores) : ""; });
  } else if (!settings.core.empty()) {
    text = core_text(
        {settings.core, settings.max_per_task, settings.predictions, settings.batch, settings.json},
        *model, world);
  } else {
    const auto results = train::score_choices(*model->transformer, items, model->tokenizer,
                                              settings.batch, ops::Path::fast, world);
    comm::all_or_none(
        world, [&] { text = world.rank() == 0 ? text_of_choices(settings, items, results) : ""; });
  }
  if (world.rank() == 0) print(text);
  return kExitDone;
}

}  // namespace

void add_eval_command(config::CommandLine& line, comm::Launch& launch) {
  const auto settings = std::make_shared<EvalSettings>();
  config::Command& command = line.command(
      "eval", "evaluate a model: loss on a token set, accuracy on multiple choice, or CORE");
  add_model_options(command, settings->model, config::Need::optional);
  add_weights_option(command, settings->model)
      .option("--reward", &settings->reward, "MODEL",
              "reward model instead of --checkpoint; prints accuracy and margin on pairs")
      .option(
          "--data", &settings->data, "SET",
          "token set of kind pretrain or sft (with --reward: dpo); prints loss, perplexity, bits per byte")
      .option(
          "--choices", &settings->choices, "FILE",
          "JSON Lines of {\"ctx\", \"endings\", \"label\"}; prints acc, acc_norm (per character)")
      .option("--core", &settings->core, "BUNDLE",
              "directory with core.yaml, eval_meta_data.csv, eval_data/; prints the CORE metric")
      .option("--max-per-task", &settings->max_per_task, "N",
              "with --core: evaluate only N items of each task, drawn at random; 0: all items")
      .option("--predictions", &settings->predictions, "FILE",
              "also write one JSON line for each sequence, item or pair, in input order")
      .option("--batch", &settings->batch, "N", "sequences, items or pairs in one forward pass")
      .option("--seq-len", &settings->seq_len, "N",
              "with --data: sequence length in tokens; 0: that of the data set")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .flag("--allow-other-template", settings->allow_other_template,
            checkpoint::kAllowOtherTemplateHelp)
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp)
      .example("trireme eval --checkpoint runs/first --data sets/held-out --json")
      .example(
          "mpirun -n 2 trireme eval --checkpoint runs/first --choices items.jsonl "
          "--predictions scores.jsonl")
      .example("mpirun -n 2 trireme eval --checkpoint runs/first --core eval_bundle --json")
      .example("trireme eval --reward runs/reward --data sets/held-out-pairs --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
