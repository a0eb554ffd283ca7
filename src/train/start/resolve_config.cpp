#include "train/start/resolve_config.hpp"

#include <algorithm>

#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data/loader.hpp"
#include "device/device.hpp"
#include "ops/fp8.hpp"
#include "optim/schedule.hpp"
#include "text/chat/markers.hpp"
#include "text/tokenizer.hpp"
#include "train/config/layout.hpp"
#include "train/config/open_values.hpp"
#include "train/config/window_schedule.hpp"
#include "train/start/depth_keys.hpp"
#include "train/start/run_length.hpp"
#include "train/start/weights_start.hpp"
#include "train/state/resume.hpp"

namespace trireme::train {
namespace {

/// Checks the chat templates of the data against the start, and the template of the validation set
/// against the template that the model is trained on. Throws Error(usage).
void check_templates(const RunStart& start, const DataConfig& config, const RunData& data) {
  const bool allowed = config.allow_template_change;
  const std::string model_template = checkpoint::template_of(start.values.model);
  if (start.kind == RunStart::Kind::state || start.kind == RunStart::Kind::weights) {
    checkpoint::check_same_template(
        {cat("--data ", config.path), data.chat_template(), start.checkpoint, model_template,
         checkpoint::jinja_name_of(start.values.model)},
        allowed);
  }
  const bool by_data = !data.chat_template().empty();
  checkpoint::check_same_template(
      {cat("data.valid_path ", config.valid_path), data.valid_chat_template(),
       by_data ? cat("--data ", config.path) : start.checkpoint,
       by_data ? data.chat_template() : model_template,
       by_data ? std::string() : checkpoint::jinja_name_of(start.values.model)},
      allowed);
}

/// Returns parallel.local_steps of the checkpoint that the run resumes; nullopt for a new run.
std::optional<std::int64_t> kept_local_steps(const RunStart& start) {
  if (start.kind != RunStart::Kind::resume_run) return std::nullopt;
  return parse_integer(start.values.configured("parallel.local_steps").value_or("1"));
}

/// Returns the training and validation sets of a run without duplicates.
std::vector<const data::TokenSet*> sets_of(const RunData& data) {
  std::vector<const data::TokenSet*> sets = data.stream().sets();
  for (const data::SampleSet& samples : data.validation()) {
    if (std::find(sets.begin(), sets.end(), &samples.set()) == sets.end())
      sets.push_back(&samples.set());
  }
  return sets;
}

/// Checks that the tokenizer of each data set has a token for each marker of the set's chat format.
/// Without these tokens, the model learns the markers as ordinary text and has no token that ends
/// an answer. Throws Error(usage) for the first set with a missing marker. If
/// data.allow_missing_markers is set or the run resumes, returns a warning instead. Returns "" if
/// no marker is missing.
std::string check_chat_markers(const RunData& data, bool is_allowed, RunStart::Kind start) {
  const text::Tokenizer tokenizer = text::Tokenizer::from_files(
      data.tokenizer_files(), data.stream().first_set().directory().string());
  for (const data::TokenSet* set : sets_of(data)) {
    const std::string name = set->manifest().chat_template();
    const text::ChatTemplate* format = text::find_chat_template(name);
    if (format == nullptr) continue;  // no chats, or a Jinja template with unknown markers
    const auto missing = text::missing_markers(*format, tokenizer);
    if (missing.empty()) continue;
    const std::string what =
        formatted("{} was packed with --template {}, and its tokenizer does not have {} as {}",
                  set->directory().string(), name, joined(missing, " "),
                  missing.size() == 1 ? "a token" : "tokens");
    if (is_allowed || start == RunStart::Kind::resume_run)
      return what + ": the model learns them as ordinary text";
    fail(
        ErrorKind::usage,
        "{}. A model that learns them as ordinary text has no token that ends an answer. Pack with a --template of this tokenizer, or with a tokenizer that has these tokens (`trireme-data tokenizer train --special-tokens` adds them), or give --allow-missing-markers",
        what);
  }
  return "";
}

/// Logs a warning on rank 0, unless it is empty.
void warn(const RunRequest& run, const std::string& text) {
  if (!text.empty() && run.ranks.world.rank() == 0) log::warn(text);
}

/// Throws Error(usage) if an update of any phase cannot be divided among the data ranks.
void check_batches(const RunConfig& config, int data_ranks, const data::SampleStream& stream) {
  const std::int64_t at_once = config.train.micro_batch * data_ranks;
  const std::vector<data::BatchPhases::Phase> phases = config.batch_phases().phases();
  for (const auto& [step, size] : phases) {
    if (!config.data.batch_phases.empty() && size % at_once != 0)
      fail(
          ErrorKind::usage,
          "data.batch_phases = {} has {} samples from step {} on, must be a multiple of {} (train.micro_batch {} x {} data-parallel ranks): use another number of ranks or another train.micro_batch",
          config.data.batch_phases, size, step, at_once, config.train.micro_batch, data_ranks);
    check_micro_batches(config.parallel,
                        data::accumulation_steps_of(size, config.train.micro_batch, data_ranks));
  }
  if (phases.size() > 1 && stream.num_phases() > 1)
    fail(ErrorKind::usage,
         "data.batch_phases = {} cannot be combined with phases of data.path, which begin at steps "
         "of one batch size",
         config.data.batch_phases);
}

/// Throws Error(usage) if the task compares log-probabilities of two passes or models. With limited
/// windows, they would not have the same context.
void check_window_task(const RunRequest& run) {
  const std::string& given = run.config.train.window_schedule;
  if (!given.empty() && run.name != "pretrain" && run.name != "sft")
    fail(ErrorKind::usage,
         "train.window_schedule is {}. It must be empty for {} {}: only pretrain and sft can limit "
         "the windows of training.",
         given, run.program, run.name);
}

void check_window_length(const TrainConfig& train) {
  const std::int64_t largest = WindowSchedule(train.window_schedule).largest();
  if (largest > train.seq_len)
    fail(ErrorKind::usage,
         "train.window_schedule is {}. Its windows must be at most train.seq_len = {}.",
         train.window_schedule, train.seq_len);
}

/// Completes the model's shape with the vocabulary size of the data.
void resolve_model(RunConfig& config, const config::ConfigSet& keys, const RunStart& start,
                   const RunData& data) {
  const auto vocabulary = static_cast<std::int64_t>(data.stream().first_set().vocab_size());
  // If the user did not choose a vocabulary size, the size in the weights applies.
  const bool is_of_weights =
      start.kind != RunStart::Kind::nothing && !keys.is_set("model.vocab_size");
  if (is_of_weights && config.model.vocab_size > 0 && config.model.vocab_size < vocabulary)
    fail_another_tokenizer(start.checkpoint);
  model::resolve(config.model, vocabulary);
}

}  // namespace

void check_fp8_device(const TrainConfig& train, at::Device device) {
  if (train.fp8_mode() == model::Fp8Mode::off) return;
  const std::string mistake =
      ops::fp8_device_mistake(train.fp8, device::device_name(device), ops::cuda_capability(device));
  if (!mistake.empty()) fail(ErrorKind::usage, "{}", mistake);
  if (device.is_cuda() && train.precision != "auto" && train.precision != "bf16")
    fail(ErrorKind::usage, "train.precision = {}, must be bf16 with train.fp8 = {} on a GPU",
         train.precision, train.fp8);
}

void check_fp8_linears(const RunConfig& config, Problems& problems) {
  const auto linears = model::fp8_linears(config.model);
  if (config.train.fp8_mode() == model::Fp8Mode::off || std::ranges::count(linears, true) > 0)
    return;
  problems.add(
      "train.fp8", config.train.fp8,
      "has no effect: no matrix of a block has at least 128 rows and columns, both divisible by 16. Set train.fp8 = off");
}

OpenChoice choose_open_values(const RunRequest& run, bool has_bf16) {
  comm::Communicator& world = run.ranks.world;
  OpenChoice choice{run.config, ""};
  RunConfig& config = choice.config;
  OpenValueFacts facts{.has_bf16 = has_bf16};
  if (run.start.kind == RunStart::Kind::resume_run) facts.saved = run.start.values.config;
  // If the command sets train.accumulation, ignore a train.global_batch that comes from another
  // run's checkpoint.
  if (facts.saved.empty() && config.train.accumulation > 0 &&
      !run.keys.is_set("train.global_batch"))
    config.train.global_batch = 0;
  comm::all_or_none(world, [&] {
    // If the layout does not divide the number of ranks, resolve_shape refuses the layout later.
    // Only then is the data open, so that the error can name all problems of the layout.
    const bool layout_divides = parallel::divides(config.parallel, world.size());
    if (layout_divides) facts.data_ranks = parallel::data_ranks(config.parallel, world.size());
    Problems problems = run.keys.problems();
    Problems ignored;
    choice.note = fill_open_values(config, facts, layout_divides ? problems : ignored);
    problems.throw_if_any();
  });
  return choice;
}

std::unique_ptr<RunData> open_data(const RunRequest& run) {
  const DataConfig& data = run.config.data;
  check_window_task(run);
  if (data.path.empty() && run.start.own)
    fail(ErrorKind::usage,
         "--data names nothing (an unset variable?): omit it to resume {} with its own data",
         run.folder.root.string());
  if (data.path.empty())
    fail(
        ErrorKind::usage,
        "--data is missing: give a token set (a directory that trireme-data pack wrote); {} holds no run to resume",
        run.folder.root.string());
  if (run.config.train.eval_every == 0 && run.ranks.world.rank() == 0 &&
      !(data.valid_path.empty() && data.split.empty())) {
    log::warn(formatted("{}, but train.eval_every = 0: nothing is validated",
                        data.valid_path.empty() ? "data.split = " + data.split
                                                : "data.valid_path = " + data.valid_path));
  }
  const std::vector<std::string_view> kinds = run.task.set_kinds();
  return std::make_unique<RunData>(run.config, kinds,
                                   [&](data::StreamConfig& stream, const data::EncodeWord& encode) {
                                     run.task.choose_data(stream, encode);
                                   });
}

void resolve_shape(RunConfig& config, const config::ConfigSet& keys, const RunStart& start,
                   const RunData& data, int ranks, Problems problems) {
  config.train.seq_len = data.seq_len();
  check_window_length(config.train);
  resolve_model(config, keys, start, data);
  const std::int64_t longest = std::max(config.train.seq_len, data.stream().max_seq_len());
  if (longest > config.model.max_seq_len) {
    fail(ErrorKind::usage, "{}{} is more than model.max_seq_len = {}",
         longest == config.train.seq_len ? "train.seq_len = " : "data.path has a phase of length ",
         longest, config.model.max_seq_len);
  }
  check_layout(config.parallel,
               {config.model, data.stream().seq_lens(), ranks, kept_local_steps(start),
                config.train.fp8_mode()},
               problems);
  check_fp8_linears(config, problems);
  model::check_targets(config.lora, config.model, problems);
  problems.throw_if_any();
  check_batches(config, parallel::data_ranks(config.parallel, ranks), data.stream());
}

std::vector<std::string> resolve_length(RunConfig& config, const config::ConfigSet& keys,
                                        const RunStart& start, const RunData& data,
                                        const Task& task) {
  check_start(start, config, keys, data);
  std::vector<std::string> warnings{
      check_chat_markers(data, config.data.allow_missing_markers, start.kind)};
  const RunLength length = run_length(config, start, keys, data, task);
  config.train.steps = length.steps;
  config.train.num_samples = length.num_samples;
  if (decay_follows_depth(config, keys))
    config.optim.decay_steps = decay_steps_of_depth(config.train.steps);
  warnings.push_back(length.warning);
  check_steps(start, config.train.steps, start.step());
  warnings.push_back(optim::warmup_note(config.optim, config.train.steps));
  warnings.push_back(optim::decay_note(config.optim, config.train.steps, start.step()));
  return warnings;
}

RunConfig resolve_by_data(const RunRequest& run, const RunData& data) {
  RunConfig config = run.config;
  resolve_shape(config, run.keys, run.start, data, run.ranks.world.size());
  warn(run, keys_without_effect(config.parallel));
  return config;
}

RunConfig resolve_by_start(const RunRequest& run, const RunData& data) {
  RunConfig config = run.config;
  for (const std::string& warning : resolve_length(config, run.keys, run.start, data, run.task))
    warn(run, warning);
  if (run.start.kind == RunStart::Kind::weights) config.checkpoint.start = "weights";
  return config;
}

std::string data_mismatch(const config::ConfigSet& keys, const data::SampleStream& stream,
                          const RunValues& values, const std::string& where) {
  const auto seed = values.configured("train.seed");
  const std::string now = keys.value("train.seed");
  if (seed && *seed != now) return formatted("train.seed = {} (was {})", now, *seed);
  try {
    stream.check_state(values.stream, saved_next_sample(values), where);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return "";
}

void check_start(const RunStart& start, const RunConfig& config, const config::ConfigSet& keys,
                 const RunData& data) {
  if (start.kind == RunStart::Kind::resume_run) {
    check_same_run(start.values, keys, start.checkpoint);
    const data::SampleStream::State& saved = start.values.stream;
    // A task that generates its samples may have no position in the data set.
    if (saved.plan || saved.content_hash)
      data.stream().check_state(saved, saved_next_sample(start.values), start.checkpoint);
  } else if (start.kind != RunStart::Kind::nothing) {
    check_same_model(start, config.model, keys);
    check_same_adapters(start, config.lora, config.model);
  }
  check_templates(start, config.data, data);
}

}  // namespace trireme::train
