#include "train/start/run_start.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "comm/agree.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "optim/config.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

/// Returns the newest checkpoint with a readable manifest. Its files are verified when it is
/// loaded.
std::optional<checkpoint::Checkpoint> newest_readable(const fs::path& checkpoints) {
  for (const std::int64_t step : checkpoint::list_steps(checkpoints)) {
    try {
      return checkpoint::Checkpoint::open(checkpoints / checkpoint::step_directory_name(step));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;  // a later start may succeed
    }
  }
  return std::nullopt;
}

/// Broadcasts a JSON text from rank 0. An Error on rank 0 becomes the member "error".
template <class Read>
Json shared(comm::Communicator& world, const Read& read) {
  Json facts = Json::object();
  if (world.rank() == 0) {
    try {
      read(facts);
    } catch (const Error& error) {
      facts["error"] = {{"kind", static_cast<int>(error.kind())}, {"text", error.what()}};
    }
  }
  return parse_json(comm::broadcast_text(world, json_text(facts)), "the start of the run");
}

void put(Json& facts, const checkpoint::Checkpoint& checkpoint) {
  facts["checkpoint"] = checkpoint.path().string();
  facts["values"] = checkpoint.manifest().values;
}

void take(const Json& facts, RunStart& start) {
  if (facts.contains("error")) {
    const Json& error = facts["error"];
    start.error =
        Error(static_cast<ErrorKind>(error["kind"].get<int>()), error["text"].get<std::string>());
  }
  if (!facts.contains("checkpoint")) return;
  start.checkpoint = facts["checkpoint"].get<std::string>();
  const auto values = facts["values"].get<RunValues::Texts>();
  if (auto wrong = comm::capture([&] { start.values = RunValues::from_values(values); }))
    start.error = std::move(wrong);
}

/// Reads the run directory. A directory that does not exist is not an error.
void read_folder(const job::RunDirectory& folder, Json& facts) {
  if (!folder.holds_run()) return;
  // Read this step before the list of checkpoints, so that the list always contains it.
  facts["committed"] = job::committed_step(folder);
  facts["own"] = !checkpoint::list_steps(folder.checkpoints()).empty();
  if (const auto own = newest_readable(folder.checkpoints())) put(facts, *own);
  if (!fs::exists(folder.config())) return;
  try {
    Json values = Json::array();
    const std::string where = folder.config().string();
    for (const config::EarlierValue& value :
         config::earlier_values(read_text(where, kMaxConfigBytes), where))
      values.push_back({value.key, value.text, value.origin});
    facts["config"] = std::move(values);
  } catch (const Error& error) {
    facts["config_error"] = error.what();
  }
}

/// A key that got its value from another key, and this other key. If the command sets the other
/// key, the derived value is dropped.
struct Derived {
  std::string_view key;
  std::string_view from;
};

constexpr std::array<Derived, 8> kDerived{{{"train.steps", "train.epochs"},
                                           {"train.steps", "train.tokens_per_param"},
                                           {"train.num_samples", "train.tokens_per_param"},
                                           {"train.tokens_per_param", "train.epochs"},
                                           {"train.steps", "train.num_samples"},
                                           {"train.num_samples", "train.epochs"},
                                           {"train.num_samples", "train.steps"},
                                           {"train.global_batch", "train.accumulation"}}};

/// Returns true if an earlier value must not be applied again. The value `never` of
/// checkpoint.resume is not applied if the run has no checkpoints, because then the user must give
/// this option again.
bool is_left_out(const config::ConfigSet& keys, const RunStart& start,
                 const config::EarlierValue& value) {
  const auto is_derived_anew = [&](const Derived& one) {
    return value.key == one.key && keys.has(one.from) && keys.is_set(one.from);
  };
  return (value.key == "checkpoint.resume" && value.text == "never" && !start.own) ||
         std::any_of(kDerived.begin(), kDerived.end(), is_derived_anew);
}

/// Returns true if min_lr was the default (a tenth of the peak) and the command sets another peak.
bool is_tenth_of_another_lr(const config::ConfigSet& keys,
                            const std::vector<config::EarlierValue>& values,
                            const config::EarlierValue& value) {
  if (value.key != "optim.min_lr" || !keys.is_set("optim.lr")) return false;
  const auto lr = std::find_if(values.begin(), values.end(), [](const config::EarlierValue& one) {
    return one.key == "optim.lr";
  });
  if (lr == values.end()) return false;
  const double tenth = 0.1 * parse_number(lr->text).value_or(0);
  return std::abs(parse_number(value.text).value_or(0) - tenth) <= 1e-9 * tenth;
}

/// Returns true if the command sets another learning-rate schedule than the earlier one, and the
/// value belongs to the earlier one only, or to no piecewise schedule.
bool is_of_another_schedule(const config::ConfigSet& keys,
                            const std::vector<config::EarlierValue>& values,
                            const config::EarlierValue& value) {
  if (!keys.is_set("optim.schedule")) return false;
  const std::string now = keys.value("optim.schedule");
  const auto before = std::ranges::find(values, "optim.schedule", &config::EarlierValue::key);
  if (before == values.end() || before->text == now) return false;
  constexpr std::array<std::string_view, 3> kOfOneSchedule{"optim.decay_steps", "optim.decay_shape",
                                                           "optim.points"};
  constexpr std::array<std::string_view, 2> kFromPoints{"optim.lr", "optim.warmup_steps"};
  return std::ranges::find(kOfOneSchedule, value.key) != kOfOneSchedule.end() ||
         (now == optim::kPiecewiseSchedule &&
          std::ranges::find(kFromPoints, value.key) != kFromPoints.end());
}

/// Applies earlier values to `keys`. Warns if they are invalid.
void apply(config::ConfigSet& keys, std::vector<config::EarlierValue> values, RunStart& start) {
  const bool anew = start.kind != RunStart::Kind::resume_run && !start.own;
  const std::vector<config::EarlierValue> all = values;
  std::erase_if(values, [&](const config::EarlierValue& value) {
    return is_left_out(keys, start, value) || (anew && (is_tenth_of_another_lr(keys, all, value) ||
                                                        is_of_another_schedule(keys, all, value)));
  });
  const std::string wrong = keys.apply_earlier(values);
  if (!wrong.empty())
    return keys.warn(formatted("values of the earlier run are ignored: {}", wrong));
  for (const config::EarlierValue& value : values) {
    if (value.key == "model.hidden_size") start.has_shape = true;
    if (value.key == "model.preset" && start.preset.empty()) start.preset = value.text;
  }
}

void apply_config_file(config::ConfigSet& keys, const Json& facts, RunStart& start) {
  if (facts.contains("config_error")) {
    keys.warn(formatted("config.toml of the run is ignored: {}",
                        facts["config_error"].get<std::string>()));
    return;
  }
  if (!facts.contains("config")) return;
  std::vector<config::EarlierValue> values;
  for (const Json& value : facts["config"])
    values.push_back(
        {value[0].get<std::string>(), value[1].get<std::string>(), value[2].get<std::string>()});
  apply(keys, std::move(values), start);
}

void apply_checkpoint(config::ConfigSet& keys, RunStart& start) {
  std::vector<config::EarlierValue> values;
  const bool weights_alone = start.kind == RunStart::Kind::weights;
  const RunValues::Texts& model = start.values.model;
  for (const auto& [key, text] : weights_alone ? model : start.values.config) {
    // If the run trains existing adapters further, keep all their lora.* values except the dropout.
    const bool of_adapters = keys.is_set("lora.rank") && checkpoint::holds_adapters(model) &&
                             key.starts_with("lora.") && key != "lora.dropout";
    if (weights_alone && !key.starts_with("model.") && !of_adapters) continue;
    // The start of the other run does not apply to this run.
    if (key == "checkpoint.resume" || key == "checkpoint.start") continue;
    values.push_back({key, text, start.checkpoint});
  }
  apply(keys, std::move(values), start);
}

/// Returns true if the run's checkpoints are missing and the command does not ask for a new start.
bool is_lost(const RunStart& start, const CheckpointConfig& config) {
  return !start.own && start.committed >= 0 && config.resume != "never";
}

RunStart::Kind kind_of(const RunStart& start, const CheckpointConfig& config) {
  using Kind = RunStart::Kind;
  if (start.checkpoint.empty()) return start.own ? Kind::resume_run : Kind::nothing;
  if (!start.values.is_training_state()) return Kind::weights;
  if (start.own) return Kind::resume_run;
  return config.start == "weights" ? Kind::weights : Kind::state;
}

}  // namespace

Error no_complete_checkpoint(const std::filesystem::path& folder) {
  return {ErrorKind::data,
          formatted("no checkpoint in {} is complete; nothing was changed. Give another --run to "
                    "start a new run",
                    folder.string())};
}

bool RunStart::was_started_fresh() const {
  return own && values.configured("checkpoint.resume") == "never";
}

std::int64_t RunStart::step() const {
  if (kind != Kind::resume_run && kind != Kind::state) return 0;
  return values.step ? number_in(values, &RunValues::step, 0, std::int64_t{1} << 62) : 0;
}

RunStart read_start(RunConfig& config, config::ConfigSet& keys, const job::RunDirectory& folder,
                    comm::Communicator& world) {
  RunStart start;
  const Json facts = shared(world, [&](Json& out) { read_folder(folder, out); });
  start.committed = facts.value("committed", std::int64_t{-1});
  start.own = facts.value("own", false);
  take(facts, start);
  if (start.own || !(keys.is_set("data.path") || config.checkpoint.names_checkpoint()))
    apply_config_file(keys, facts, start);
  if (!start.own && config.checkpoint.names_checkpoint()) {
    const Json named = shared(world, [&](Json& out) {
      const checkpoint::ModelDescription model =
          checkpoint::read_model_description(config.checkpoint.resume);
      out["checkpoint"] = model.place.string();
      out["values"] = model.values;
    });
    take(named, start);
  }
  if (!start.error && is_lost(start, config.checkpoint)) {
    start.error = Error(
        ErrorKind::data,
        formatted(
            "{} has committed step {}, and {} holds no checkpoint: restore the checkpoints, or give --resume never to start again, or another --run",
            folder.root.string(), start.committed, folder.checkpoints().string()));
  }
  if (!start.error && start.own && start.checkpoint.empty())
    start.error = no_complete_checkpoint(folder.checkpoints());
  start.kind = kind_of(start, config.checkpoint);
  apply_checkpoint(keys, start);
  return start;
}

void check_init(std::string_view name, const RunConfig& config, const RunStart& start,
                config::ConfigSet& keys) {
  if (start.error) return;
  const std::string& place = config.checkpoint.resume;
  if (start.kind == RunStart::Kind::nothing && !start.own && start.committed < 0) {
    keys.problems().add("checkpoint.resume", place,
                        formatted("{} starts from a trained model: give --init with a {}", name,
                                  checkpoint::kModelPathHelp));
  }
  const auto begun = start.values.configured("checkpoint.resume");
  if (start.kind != RunStart::Kind::resume_run || !begun || !config.checkpoint.names_checkpoint())
    return;
  if (fs::weakly_canonical(place) != fs::weakly_canonical(*begun)) {
    keys.problems().add(
        "checkpoint.resume", place,
        formatted(
            "but this run started from {}: leave out this option to resume, or give another --run",
            *begun));
  }
}

void check_task(std::string_view name, const RunStart& start) {
  if (start.kind != RunStart::Kind::resume_run) return;
  const auto& task = start.values.task;
  if (!task || *task == name) return;
  fail(
      ErrorKind::usage,
      "{} belongs to a run of `trireme {}`, which {} cannot resume: give this checkpoint to --init, and another --run",
      start.checkpoint, *task, name);
}

void check_start_kind(const RunConfig& config, const RunStart& start, config::ConfigSet& keys) {
  if (start.error || !keys.is_set("checkpoint.start")) return;
  const std::string& wanted = config.checkpoint.start;
  const bool is_named = config.checkpoint.names_checkpoint();
  if (wanted == "state" && start.kind == RunStart::Kind::weights) {
    keys.problems().add(
        "checkpoint.start", wanted,
        formatted("but {} holds only weights: leave out this option", start.checkpoint));
  }
  if (wanted == "weights" && !is_named && start.kind == RunStart::Kind::resume_run) {
    keys.problems().add(
        "checkpoint.start", wanted,
        formatted(
            "but this run resumes from its own {}: give that checkpoint to --init, and a new --run",
            start.checkpoint));
  } else if (wanted == "weights" && !is_named && start.kind == RunStart::Kind::nothing) {
    keys.problems().add("checkpoint.start", wanted, "needs a checkpoint: --init, or --resume");
  }
}

}  // namespace trireme::train
