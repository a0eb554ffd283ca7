#include "train/run/settle.hpp"

#include <algorithm>

#include "checkpoint/format/state.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data/loader.hpp"
#include "data/order/length_warning.hpp"
#include "job/doctor/findings.hpp"
#include "optim/schedule.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/config/layout.hpp"
#include "train/config/open_values.hpp"
#include "train/health/memory_need.hpp"
#include "train/run/chat_markers.hpp"
#include "train/run/frozen_start.hpp"
#include "train/run/run_length.hpp"
#include "train/run/weights_start.hpp"
#include "train/state/resume.hpp"

namespace trireme {
namespace {

/// Checks the chat templates of the data against that of the start, and that of a validation set
/// against the one that the model is trained on. Throws Error(usage).
void check_templates(const RunStart& start, const DataConfig& config, const RunData& data) {
  const bool allowed = config.allow_template_change;
  const std::string taught = template_of(start.values.model);
  if (start.kind == RunStart::Kind::state || start.kind == RunStart::Kind::weights) {
    check_same_template(
        {cat("--data ", config.path), data.chat_template(), start.checkpoint, taught}, allowed);
  }
  const bool by_data = !data.chat_template().empty();
  check_same_template({cat("data.valid_path ", config.valid_path), data.valid_chat_template(),
                       by_data ? cat("--data ", config.path) : start.checkpoint,
                       by_data ? data.chat_template() : taught},
                      allowed);
}

/// Of a run that goes on.
std::optional<std::int64_t> kept_local_steps(const RunStart& start) {
  if (start.kind != RunStart::Kind::go_on) return std::nullopt;
  return parse_integer(start.values.configured("parallel.local_steps").value_or("1"));
}

/// Collective, before anything waits for all devices: what `trireme doctor` calls an error. Throws on
/// all ranks.
void check_places_of_ranks(const RunRequest& run) {
  Communicator& world = run.ranks.world;
  const LaunchInfo& launch = run.ranks.launch;
  const std::string& wanted = run.config.train.device;
  const at::Device device = choose_device(wanted, launch.local_rank);
  RankFacts mine = own_facts(launch, run.config.train.threads);
  mine.device.gpu = gpu_identity(device);
  mine.device.num_gpus = device.is_cuda() ? num_visible_gpus() : 0;
  mine.device.was_chosen = wanted != "auto";
  if (wanted != "cpu") {
    const CudaVersions cuda = cuda_versions();
    mine.cuda_driver = cuda.driver;
    mine.cuda_runtime = cuda.runtime;
  }
  const auto all = gather_texts(world, to_text(mine));
  all_or_none(world, [&] {
    if (world.rank() != 0) return;
    std::vector<RankFacts> ranks;
    for (const std::string& text : all) ranks.push_back(rank_facts_from(text));
    Problems problems;
    for (const Finding& one : findings_of(ranks)) {
      if (one.severity == Finding::Severity::error) problems.add(one.line());
    }
    problems.throw_if_any();
  });
}

void resolve_config(const RunRequest& run, const RunData& data) {
  RunConfig& config = run.config;
  const RunStart& start = run.start;
  resolve(config.model, static_cast<std::int64_t>(data.stream().first_set().vocab_size()));
  const std::int64_t longest = std::max(config.train.seq_len, data.stream().max_seq_len());
  if (longest > config.model.max_seq_len) {
    fail(ErrorKind::usage, "{}{} is more than model.max_seq_len = {}",
         longest == config.train.seq_len ? "train.seq_len = " : "data.path has a phase of length ",
         longest, config.model.max_seq_len);
  }
  Problems problems;
  check_layout(
      config.parallel,
      {config.model, data.stream().seq_lens(), run.ranks.world.size(), kept_local_steps(start)},
      problems);
  check_targets(config.lora, config.model, problems);
  problems.throw_if_any();
  const std::string idle = keys_without_effect(config.parallel);
  if (!idle.empty() && run.ranks.world.rank() == 0) log::warn(idle);
  check_micro_batches(config.parallel,
                      micro_steps_of(config.train.global_batch, config.train.micro_batch,
                                     data_ranks(config.parallel, run.ranks.world.size())));
  check_start(start, config, run.keys, data);
  const std::string markers =
      check_chat_markers(data, config.data.allow_missing_markers, start.kind);
  if (!markers.empty() && run.ranks.world.rank() == 0) log::warn(markers);
  const std::string small = settle_length(config, start, run.keys, data);
  if (!small.empty() && run.ranks.world.rank() == 0) log::warn(small);
  check_steps(start, config.train.steps, start.step());
  const std::string note = warmup_note(config.optim, config.train.steps);
  if (!note.empty() && run.ranks.world.rank() == 0) log::warn(note);
  if (start.kind == RunStart::Kind::weights) config.checkpoint.start = "weights";
}

/// Logs a warning for each data set that loses something at a length below the packed one.
void warn_of_length(const RunData& data) {
  for (const SampleSet* samples : data.sample_sets()) {
    const std::string text = length_warning(*samples, "train.seq_len =");
    if (!text.empty()) log::warn(text);
  }
}

}  // namespace

std::string choose_values(const RunRequest& run) {
  Communicator& world = run.ranks.world;
  RunConfig& config = run.config;
  std::int64_t bf16 = 0;
  bool layout_divides = true;
  OpenValueFacts facts;
  all_or_none(world, [&] {
    // A layout that does not divide the ranks is refused with all that is known against it: when
    // the data is open.
    layout_divides = divides(config.parallel, world.size());
    if (layout_divides) facts.data_ranks = data_ranks(config.parallel, world.size());
    bf16 = with_torch_errors([&] {
      return has_bf16(choose_device(config.train.device, run.ranks.launch.local_rank)) ? 1 : 0;
    });
    if (run.start.kind == RunStart::Kind::go_on) facts.saved = run.start.values.config;
  });
  check_places_of_ranks(run);
  // One precision for all, whatever GPUs the nodes have.
  facts.has_bf16 = all_reduce_value(world, bf16, ReduceOp::min, "bf16") != 0;
  // What a new run has from the checkpoint it starts from gives way to what this command says.
  if (facts.saved.empty() && config.train.accumulation > 0 &&
      !run.keys.is_set("train.global_batch"))
    config.train.global_batch = 0;
  std::string note;
  all_or_none(world, [&] {
    Problems unsaid;
    note = fill_open_values(config, facts, layout_divides ? run.keys.problems() : unsaid);
    run.keys.finish();
  });
  return note;
}

std::unique_ptr<RunData> open_data(const RunRequest& run) {
  const DataConfig& data = run.config.data;
  if (data.path.empty())
    fail(
        ErrorKind::usage,
        "--data is missing: give a token set (a folder that trireme-data pack wrote); in {} is no run to go on from",
        run.folder.root.string());
  if (run.config.train.eval_every == 0 && run.ranks.world.rank() == 0 &&
      !(data.valid_path.empty() && data.split.empty())) {
    log::warn(formatted("{}, but train.eval_every = 0: nothing is validated",
                        data.valid_path.empty() ? "data.split = " + data.split
                                                : "data.valid_path = " + data.valid_path));
  }
  const std::vector<std::string_view> kinds = run.task.set_kinds();
  auto opened = std::make_unique<RunData>(run.config, kinds,
                                          [&](StreamConfig& stream, const EncodeWord& encode) {
                                            run.task.choose_data(stream, encode);
                                          });
  resolve_config(run, *opened);
  run.task.check_files(run.config, opened->sample_sets());
  if (run.ranks.world.rank() == 0) warn_of_length(*opened);
  check_frozen(run, *opened);
  with_torch_errors([&] {
    check_room(run.config, run.ranks.launch, run.ranks.world.size(), run.keys,
               !opened->stream().of_pairs(), frozen_parameters(run));
  });
  return opened;
}

std::string other_data(const ConfigSet& keys, const SampleStream& stream, const RunValues& values,
                       const std::string& where) {
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

void check_start(const RunStart& start, const RunConfig& config, const ConfigSet& keys,
                 const RunData& data) {
  if (start.kind == RunStart::Kind::go_on) {
    check_same_run(start.values, keys, start.checkpoint);
    data.stream().check_state(start.values.stream, saved_next_sample(start.values),
                              start.checkpoint);
  } else if (start.kind != RunStart::Kind::nothing) {
    check_same_model(start, config.model, keys);
    check_same_adapters(start, config.lora, config.model);
  }
  check_templates(start, config.data, data);
}

}  // namespace trireme
