#include "checkpoint/format/folder.hpp"
#include "checkpoint/upkeep/newest.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/run/training_model.hpp"
#include "train/run/weights_start.hpp"
#include "train/state/continuation.hpp"
#include "train/state/resume.hpp"

/// The part of a run that goes on from a checkpoint: its own, or another run's.
namespace trireme {

void TrainingRun::check_start() const {
  if (!start_.own && start_.committed >= 0 && config_.checkpoint.resume != "never") {
    fail(
        ErrorKind::data,
        "{} has committed step {}, and {} holds no checkpoint: put them back, or give --resume never to start anew, or another --run",
        folder_.root.string(), start_.committed, folder_.checkpoints().string());
  }
  if (start_.kind == RunStart::Kind::go_on) {
    check_same_run(start_.values, keys_, start_.checkpoint);
  } else if (start_.kind != RunStart::Kind::nothing) {
    check_same_model(start_, config_.model, keys_);
  }
}

void TrainingRun::check_steps(std::int64_t done) const {
  if (config_.train.steps >= done) return;
  fail(ErrorKind::usage, "train.steps = {}, but {} has done {}: give {} or more{}",
       config_.train.steps, start_.checkpoint, done, done,
       start_.kind == RunStart::Kind::state ? ", or --init to begin at step 0" : "");
}

std::string TrainingRun::other_data(const std::map<std::string, std::string>& values,
                                    const std::string& where) const {
  const auto seed = values.find("config.train.seed");
  if (seed != values.end() && seed->second != keys_.value("train.seed"))
    return formatted("train.seed = {} (was {})", keys_.value("train.seed"), seed->second);
  try {
    data_->stream().check_state(values, saved_next_sample(values), where);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return "";
}

void TrainingRun::resume() {
  const std::vector<std::int64_t> own = list_steps(folder_.checkpoints(), world_);
  const std::int64_t newest = own.empty() ? -1 : own.front();
  std::optional<Checkpoint> found;
  if (newest >= 0) {
    const std::string& named = config_.checkpoint.resume;
    if (named != "auto" && named != "never") all_or_none(world_, [&] { check_named(newest); });
    if (newest < start_.committed && world_.rank() == 0)
      log::warn(formatted(
          "step {} was committed, but {} has only step {} and older: its steps are done again",
          start_.committed, folder_.checkpoints().string(), newest));
    found = find_newest_good(folder_.checkpoints(), world_,
                             [](std::string_view text) { log::warn(text); });
    all_or_none(world_, [&] {
      if (!found) {
        fail(ErrorKind::data,
             "no checkpoint in {} is whole; nothing was changed. Give another --run to start anew",
             folder_.checkpoints().string());
      }
      set_aside_after(found->step());  // the run will come to those steps again
    });
    saved_step_ = found->step();
    saver_->trust(saved_step_);
  } else if (config_.checkpoint.resume != "auto" && config_.checkpoint.resume != "never") {
    all_or_none(world_, [&] {
      found = open_newest_good(config_.checkpoint.resume, world_, /*allow_older=*/true);
    });
  }
  fingerprint_ = take_fingerprint(world_, model_->registry.device(), layout());
  bool goes_on = false;
  if (found) {
    goes_on = load(*found);
  } else {
    model_->registry.initialize(static_cast<std::uint64_t>(config_.train.seed));
  }
  if (progress_.step == 0) all_or_none(world_, [&] { chain_->start(0, ""); });
  all_or_none(world_, [&] { open_sinks(); });
  if (goes_on) {
    MetricsLine line{MetricsLine::Kind::resumed, {}};
    metrics_->write(line.add("resumed_from", progress_.step));
  }
  const Mesh& mesh = model_->mesh;
  all_or_none(world_, [&] {
    loader_.emplace(data_->stream(), LoaderConfig{config_.train.micro_batch,
                                                  config_.train.global_batch, mesh.rank(Axis::data),
                                                  mesh.size(Axis::data), progress_.next_sample});
  });
}

void TrainingRun::check_named(std::int64_t newest) const {
  const std::string& start = config_.checkpoint.resume;
  const std::string newest_name = step_folder_name(newest);
  std::error_code code;
  const std::filesystem::path place = std::filesystem::canonical(start, code);
  if (!code && place.filename() != newest_name &&
      std::filesystem::equivalent(place.parent_path(), folder_.checkpoints(), code)) {
    fail(
        ErrorKind::usage,
        "checkpoint.resume = {} is not the newest checkpoint of this run, {}: give another --run to branch off there, or resume auto to go on",
        start, newest_name);
  }
  log::info(formatted("this run has {} of its own: it goes on from there, not from {}", newest_name,
                      start));
}

void TrainingRun::set_aside_after(std::int64_t step) const {
  if (world_.rank() != 0) return;
  for (const std::int64_t damaged : list_steps(folder_.checkpoints())) {
    if (damaged > step)
      log::warn(formatted("moved to {}", set_aside_step(folder_.checkpoints(), damaged).string()));
  }
}

bool TrainingRun::load(const Checkpoint& checkpoint) {
  const auto& values = checkpoint.manifest().values;
  const std::string where = checkpoint.path().string();
  const bool weights = start_.kind == RunStart::Kind::weights || !values.contains("update");
  std::string fresh_data;
  StateDict state;
  for (StateTensor& tensor : model_->state.tensors()) {
    if (!weights || tensor.name.starts_with("param/")) state.tensors.push_back(tensor);
  }
  all_or_none(world_, [&] {
    if (start_.kind == RunStart::Kind::go_on) {
      data_->stream().check_state(values, saved_next_sample(values), where);
    } else {
      check_same_tokenizer(checkpoint, data_->stream().first_set().manifest().tokenizer_hash);
    }
    if (weights) return;
    check_has_moments(checkpoint, state);
    // The scale of another precision is none.
    LossScaler unused(false);
    const auto precision = values.find("config.train.precision");
    const bool scaled = precision == values.end() || precision->second == config_.train.precision;
    progress_ = load_progress(values, checkpoint.step(), scaled ? model_->scaler : unused);
    check_steps(progress_.step);
    if (start_.kind == RunStart::Kind::state) fresh_data = other_data(values, where);
    if (!fresh_data.empty()) progress_.next_sample = 0;
    load_history(values);
  });
  load_converted(checkpoint, state, world_);
  model_->state.unstage();
  model_->registry.refresh_weights();
  log_start(checkpoint, weights, fresh_data);
  return !weights;
}

void TrainingRun::open_sinks() {
  if (world_.rank() != 0) return;
  const SinkSetup setup{folder_.metrics(), progress_.step, config_.train.steps,
                        config_.train.log_every};
  for (auto& sink : make_sinks(setup)) metrics_->add(std::move(sink));
}

void TrainingRun::log_start(const Checkpoint& checkpoint, bool weights,
                            const std::string& fresh_data) const {
  const std::string where = checkpoint.path().string();
  if (weights) {
    log::info(formatted("starting from the weights of {}", where));
  } else {
    const Continuation continuation{checkpoint.manifest().values,
                                    config_,
                                    keys_,
                                    fingerprint_,
                                    fresh_data.empty() ? data_->stream().plan_hash() : "",
                                    progress_.step};
    log::info(formatted("resumed from {} at step {}; {}", where, progress_.step,
                        fresh_data.empty()
                            ? describe_continuation(continuation)
                            : formatted("the data begins at its sample 0: {}", fresh_data)));
  }
  if (start_.kind == RunStart::Kind::go_on) return;
  const auto changes = changed_keys(checkpoint.manifest().values, keys_);
  if (!changes.empty())
    log::info(formatted("configuration other than in {}: {}", where, changes_text(changes)));
}

void TrainingRun::put_history(std::map<std::string, std::string>& values) const {
  values["chain"] = chain_->value();
  values["skipped_in_a_row"] = cat(skipped_->in_a_row());
  metrics_->put_spikes(values);
  put_fingerprint(values, fingerprint_);
  values["data.plan_hash"] = data_->stream().plan_hash();
}

void TrainingRun::load_history(const std::map<std::string, std::string>& values) {
  // Absent in checkpoints of version 0.1: the chain then starts anew at this step.
  const auto chain = values.find("chain");
  chain_->start(progress_.step, chain == values.end() ? "" : chain->second);
  // A new run is judged by its own steps.
  if (start_.kind == RunStart::Kind::go_on && values.contains("skipped_in_a_row"))
    skipped_->restore(number_in(values, "skipped_in_a_row", 0, progress_.step));
  metrics_->restore_spikes(values);
}

}  // namespace trireme
