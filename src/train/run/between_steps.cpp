#include <ATen/Parallel.h>

#include <cmath>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/lora_values.hpp"
#include "checkpoint/format/model_values.hpp"
#include "comm/launchers.hpp"
#include "comm/liveness/activity.hpp"
#include "core/log.hpp"
#include "pipeline/schedule_file.hpp"
#include "train/report/progress_line.hpp"
#include "train/run/evaluate.hpp"
#include "train/run/training_run.hpp"
#include "train/state/resume.hpp"

/// What a run does between steps: validation, checkpoints, lines of metrics, the end.
namespace trireme {

void TrainingRun::enter(const char* phase) const {
  if (activity() != nullptr) activity()->set_phase(phase);
}

bool validate(TrainingRun& run) {
  run.enter("validate");
  run.model.step.average_copies();
  const CountTime counted(run.measures.all, run.measures.validation_s);
  const Timer timer;
  Keepers& keepers = run.keepers;
  const auto validation =
      evaluate(run.model.step, run.data.validation(), run.config().train.micro_batch,
               [&](std::int64_t i, std::int64_t n) { return keepers.stop_between.before(i, n); });
  if (!validation) return false;
  MetricsLine line{MetricsLine::Kind::validation, {}};
  const Objective& objective = *run.model.objective;
  line.add("eval_step", run.progress.step)
      .add("valid_loss", validation->loss)
      .add(objective.term() == LossTerm::pair ? "valid_pairs" : "valid_targets",
           static_cast<std::int64_t>(validation->num_terms));
  for (std::size_t i = 0; i < validation->means.size(); ++i)
    line.add(cat("valid_", objective.evaluated()[i]), validation->means[i]);
  keepers.metrics.write(line);
  run.valid_loss = {run.progress.step, validation->loss};
  keepers.metrics.pause();
  log::info(formatted("step {}  validation loss {}", run.progress.step, validation->loss));
  keepers.requests.limit().validation_took(timer.seconds());
  return true;
}

namespace {

/// Returns the values of a checkpoint of the current step.
RunValues values_now(const TrainingRun& run) {
  const RunConfig& config = run.config();
  RunValues values = run.beginning.carried;
  values.task = run.request.name;
  put_progress(values, run.progress, run.model.scaler);
  values.stream = run.data.stream().state(run.progress.next_sample);
  values.plan_hash = run.data.stream().plan_hash();
  if (const auto& found = run.model.step.found_schedule()) values.schedule = text_of(*found);
  run.keepers.put_history(values);
  if (run.valid_loss.step == run.progress.step) values.valid_loss = run.valid_loss.loss;
  values.config = config_texts(run.request.keys);
  values.fingerprint = run.beginning.fingerprint;
  put_model_values(config.model, values.model);
  if (config.lora.on()) put_lora_values(config.lora, values.model);
  if (!run.data.chat_template().empty())
    values.model[kChatTemplateValue] = run.data.chat_template();
  return values;
}

}  // namespace

void save(TrainingRun& run) {
  run.enter("save");
  const CountTime counted(run.measures.all, run.measures.save_s);
  run.since_save.restart();
  // Lines of the steps that the checkpoint holds must be on disk before it: a resumed run does not
  // write them again.
  show_last_metrics(run);
  CheckpointSaver& saver = run.keepers.saver;
  saver.wait_copied();
  run.model.step.average_copies();
  run.model.state.stage();
  StateDict state{run.model.state.tensors(), values_now(run).to_values(),
                  run.data.tokenizer_files()};
  state.files.insert(run.beginning.files.begin(), run.beginning.files.end());
  state.files["config.toml"] = run.request.keys.to_toml();
  saver.save(run.progress.step, state);
  run.saved_step = run.progress.step;
  if (!saver.in_flight()) run.keepers.requests.limit().save_took(run.since_save.seconds());
}

void commit(TrainingRun& run) {
  const CountTime counted(run.measures.all, run.measures.save_s);
  run.keepers.saver.commit();
}

void heed(TrainingRun& run, const MetricsLine& line) {
  const double step_s =
      line.value("step_time_s") - line.value("save_s") - line.value("validation_s");
  run.keepers.stop_between.piece_takes(step_s / static_cast<double>(run.loader.micro_steps()));
  run.shares.add(
      {line.value("step_time_s"), line.value("data_wait_s"), line.value("comm_exposed_s"),
       line.value("peer_wait_s"), line.value("save_s"), line.value("validation_s")},
      run.config().train.metrics_every);
  if (!run.shares.data_became_slow() || run.world().rank() != 0) return;
  const TrainConfig& train = run.config().train;
  run.keepers.metrics.pause();
  log::warn(data_advice(run.shares, static_cast<double>(train.global_batch * train.seq_len),
                        at::get_num_threads(), run.config().data.path));
}

void show_last_metrics(TrainingRun& run) {
  if (const auto line = run.keepers.metrics.flush()) heed(run, *line);
  run.keepers.metrics.pause();
}

void close(const TrainingRun& run, bool done) {
  const std::int64_t steps = run.progress.step - run.beginning.progress.step;
  const std::int64_t tokens = run.progress.tokens - run.beginning.progress.tokens;
  const double time_s = run.run_time.seconds();
  const double tokens_per_s = static_cast<double>(tokens) / time_s;
  MetricsLine closing{MetricsLine::Kind::end, {}};
  closing.add("end_step", run.progress.step)
      .add("time", unix_time_s())
      .add("done", done)
      .add("steps", steps)
      .add("tokens", tokens)
      .add("time_s", time_s)
      .add("tokens_per_s", tokens_per_s);
  run.keepers.metrics.write(closing);
  if (run.world().rank() != 0) return;
  const RunFolder& folder = run.request.folder;
  const std::string how =
      done ? "done" : formatted("stopped on request ({})", run.keepers.requests.reason());
  const std::string newest =
      list_steps(folder.checkpoints()).empty()
          ? "no checkpoint yet"
          : formatted("newest checkpoint {}", step_folder_name(run.saved_step));
  std::string what = "no new step";
  if (steps > 0) {
    what = formatted(
        "{}{}{} tokens in {}, {} tok/s by the clock", steps, steps == 1 ? " step, " : " steps, ",
        format_count(static_cast<double>(tokens)),
        time_s < 60 ? formatted("{} s", std::round(10 * time_s) / 10) : format_duration(time_s),
        format_count(tokens_per_s));
  }
  if (const std::int64_t skipped = run.keepers.skipped.in_a_row(); skipped > 0)
    log::warn(formatted(
        "the last {} steps changed nothing: loss or gradient was not finite (skipped/ in the run folder has the samples)",
        skipped));
  if (const std::string shares = run.shares.text(); !shares.empty())
    log::info(formatted("of the time: {}", shares));
  log::info(formatted(
      "{} at step {}/{}: {}; {}, {}{}", how, run.progress.step, run.config().train.steps, what,
      folder.root.string(), newest,
      done ? "" : cat("; the same command resumes; ", stopped_code_text(launcher_variables()))));
}

}  // namespace trireme
