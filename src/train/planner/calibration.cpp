#include "train/planner/calibration.hpp"

#include <algorithm>
#include <cmath>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/number.hpp"
#include "device/device.hpp"
#include "train/config/config.hpp"
#include "train/config/layout.hpp"
#include "train/planner/config_json.hpp"

namespace trireme::planner {
namespace {

/// Keeps one predictor per measured step, which caches its schedule.
class Residuals {
 public:
  explicit Residuals(std::span<const MeasuredStep> steps) : steps_(steps) {
    for (const MeasuredStep& step : steps) predictors_.emplace_back(step.cluster, TimeConstants{});
  }

  std::vector<double> at(const TimeConstants& constants) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      predictors_[i].use(constants);
      errors.push_back(predictors_[i].predict(steps_[i].facts).step_s / steps_[i].step_s - 1);
    }
    return errors;
  }

 private:
  std::span<const MeasuredStep> steps_;
  std::vector<StepPredictor> predictors_;
};

/// Clamps the constants to their valid ranges.
void keep_in_range(TimeConstants& constants) {
  constants.efficiency = std::clamp(constants.efficiency, 1e-4, 1.0);
  constants.tp_hidden = std::clamp(constants.tp_hidden, 0.0, 1.0);
  constants.elementwise_bytes = std::clamp(constants.elementwise_bytes, 1.0, 1e5);
  constants.network_factor = std::clamp(constants.network_factor, 1e-3, 1e3);
  constants.overhead_s = std::max(constants.overhead_s, 0.0);
}

/// Maximum of micro batch size, tokens per row and gradient-accumulation steps.
constexpr std::int64_t kMostRows = std::int64_t{1} << 24;
constexpr double kLongestStepS = 1e5;

/// Splits a text of consecutive JSON objects. Other text is returned as it is, so that parse_json
/// reports it.
std::vector<std::string> split_objects(const std::string& text) {
  std::vector<std::string> objects;
  std::string current;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    current += c;
    if (in_string) {
      if (c == '\\' && i + 1 < text.size()) current += text[++i];
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{') ++depth;
    if (c != '}' || --depth > 0) continue;
    objects.push_back(std::exchange(current, {}));
  }
  if (current.find_first_not_of(" \t\r\n") != std::string::npos) objects.push_back(current);
  return objects;
}

/// Checks a row like `bench step` checks its configuration.
void check_row(train::RunConfig config, std::int64_t length, int ranks, const std::string& where) {
  const auto problem = comm::capture([&] {
    Problems problems;
    check(config.model, problems);
    check(config.optim, problems);
    check(config.parallel, problems);
    problems.throw_if_any();
    model::resolve(config.model, config.model.vocab_size);
    train::check_layout(config.parallel, {config.model, {length}, ranks}, problems);
    problems.throw_if_any();
  });
  if (problem) fail(ErrorKind::data, "{}: {}", where, problem->what());
}

BenchRow bench_row(const std::string& text, const std::string& where, const DeviceKind& kind) {
  const Json json = parse_json(text, where);
  for (const char* key : {"model", "parallel"}) {
    if (!json.contains(key) || !json[key].is_object())
      fail(ErrorKind::data, "{}: has no object '{}'. Give the output of trireme bench step --json",
           where, key);
  }
  const std::string needed = kind.shares_node ? "cpu" : "cuda";
  const auto device = json_get<std::string>(json, "device", where);
  if (device != needed)
    fail(ErrorKind::usage, "--calibration {}: device = {}, must be {} with --gpu {}", where, device,
         needed, kind.name);
  const auto integer = [&](const char* key, std::int64_t most) {
    const auto value = json_get<std::int64_t>(json, key, where);
    if (value < 1 || value > most)
      fail(ErrorKind::data, "{}: {} = {}, must be in [1, {}]", where, key, value, most);
    return value;
  };
  train::RunConfig config;
  take_config(json["model"], where, config.model);
  take_config(json["parallel"], where, config.parallel);
  config.optim.name = json_get<std::string>(json, "optimizer", where);
  train::UpdateShape shape{integer("micro_batch", kMostRows), integer("seq_len", kMostRows),
                           integer("micro_steps", kMostRows)};
  const auto ranks = static_cast<int>(integer("ranks", kMostPlannedRanks));
  Cluster cluster{kind, 1, static_cast<int>(integer("ranks_per_node", kMostPlannedRanks))};
  cluster.device.cores = static_cast<int>(integer("cores", kMostPlannedRanks));
  cluster.nodes = (ranks + cluster.per_node - 1) / cluster.per_node;
  const double step_s = json_get<double>(json, "step_time_s", where);
  const auto waiting_s = json_get<double>(json, "comm_exposed_s", where);
  if (!(step_s > 0) || !(step_s < kLongestStepS) || !(waiting_s >= 0))
    fail(ErrorKind::data,
         "{}: step_time_s = {}, comm_exposed_s = {}, must be above 0 and below {}, and 0 or more",
         where, number_text(step_s), number_text(waiting_s), number_text(kLongestStepS));
  check_row(config, shape.length, ranks, where);
  const auto dtypes = device::precision_dtypes(json_get<std::string>(json, "precision", where));
  return {
      {train::update_facts(config.model, config.optim, dtypes, config.parallel, ranks, shape, {}),
       cluster, step_s},
      waiting_s};
}

double exposed_of(const StepTime& time) {
  return time.spent.tp + time.spent.cp + time.spent.ep + time.spent.dp;
}

/// Returns the ratio of measured to predicted exposed communication over all rows of several ranks;
/// 0 without such rows.
double waiting_ratio(const std::vector<BenchRow>& rows, const TimeConstants& constants) {
  double measured = 0;
  double predicted = 0;
  for (const BenchRow& row : rows) {
    // In a pipeline, the waiting time is mostly its bubble.
    if (row.step.facts.ranks == 1 || row.step.facts.parallel.pp > 1) continue;
    StepPredictor predictor(row.step.cluster, constants);
    measured += row.comm_exposed_s;
    predicted += exposed_of(predictor.predict(row.step.facts));
  }
  return predicted > 0 && measured > 0 ? measured / predicted : 0;
}

}  // namespace

double rms(std::span<const double> errors) {
  double sum = 0;
  for (const double error : errors) sum += error * error;
  return errors.empty() ? 0 : std::sqrt(sum / static_cast<double>(errors.size()));
}

std::vector<double> errors_of(std::span<const MeasuredStep> steps, const TimeConstants& constants) {
  return Residuals(steps).at(constants);
}

TimeConstants fit(std::span<const MeasuredStep> steps, const TimeConstants& start,
                  std::span<const Constant> free) {
  Residuals residuals(steps);
  TimeConstants best = start;
  double error = rms(residuals.at(best));
  const auto take_if_better = [&](TimeConstants tried) {
    keep_in_range(tried);
    const double its = rms(residuals.at(tried));
    if (its >= error) return false;
    best = tried;
    error = its;
    return true;
  };
  for (double step = 0.5; step > 1e-3;) {
    const TimeConstants before = best;
    bool better = false;
    for (const Constant constant : free) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        TimeConstants tried = best;
        tried.*constant *= factor;
        better = take_if_better(tried) || better;
      }
    }
    if (!better) {
      step /= 2;
      continue;
    }
    TimeConstants further = best;  // constants trade off against each other: extrapolate the change
    for (const Constant constant : free)
      if (before.*constant > 0) further.*constant *= best.*constant / before.*constant;
    take_if_better(further);
  }
  return best;
}

std::vector<BenchRow> read_bench_rows(const std::filesystem::path& path, const DeviceKind& kind) {
  if (!std::filesystem::exists(path))
    fail(ErrorKind::usage, "--calibration {}, must be an existing file", path.string());
  std::vector<BenchRow> rows;
  for (const std::string& object : split_objects(read_file(path)))
    rows.push_back(bench_row(object, formatted("{} row {}", path.string(), rows.size() + 1), kind));
  if (rows.empty())
    fail(ErrorKind::data, "{} is empty. Give the output of trireme bench step --json",
         path.string());
  return rows;
}

Calibration calibrate(const std::vector<BenchRow>& rows) {
  std::vector<MeasuredStep> steps;
  for (const BenchRow& row : rows) steps.push_back(row.step);
  Calibration result;
  std::vector<Constant> free{&TimeConstants::efficiency};
  if (rows.size() > 2) free.push_back(&TimeConstants::elementwise_bytes);
  constexpr int kRounds = 6;  // converges: each constant affects the other less than itself
  for (int round = 0; round < kRounds; ++round) {
    result.constants = fit(steps, result.constants, free);
    const double ratio = waiting_ratio(rows, result.constants);
    if (ratio > 0) result.constants.network_factor *= ratio;
  }
  result.constants = fit(steps, result.constants, free);
  result.errors = errors_of(steps, result.constants);
  return result;
}

}  // namespace trireme::planner
