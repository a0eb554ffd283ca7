#include "train/config/open_values.hpp"

#include <filesystem>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/number.hpp"
#include "data/order/plan.hpp"
#include "optim/schedule.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kSmallestChosenBatch = 32;

const std::string* saved_value(const OpenValueFacts& facts, const char* key) {
  const auto found = facts.saved.find(key);
  return found == facts.saved.end() ? nullptr : &found->second;
}

std::string fill_batch(TrainConfig& train, const std::string& phases, const OpenValueFacts& facts,
                       Problems& problems) {
  const std::string* saved = saved_value(facts, "train.global_batch");
  if (train.global_batch == 0 && saved != nullptr)
    train.global_batch = parse_integer(*saved).value_or(0);
  if (!phases.empty()) {
    try {
      train.global_batch = data::BatchPhases(phases).global_batch(1);
    } catch (const Error&) {  // check() reports it
    }
    return "";
  }
  const std::int64_t sequences = train.micro_batch * facts.data_ranks;  // per accumulation step
  const std::string factors =
      formatted("{} x train.micro_batch {}", counted(facts.data_ranks, "data-parallel rank"),
                train.micro_batch);
  const std::int64_t accumulated = sequences * train.accumulation;
  if (accumulated > 0) {
    if (train.global_batch != 0 && train.global_batch != accumulated)
      problems.add(
          "train.accumulation", train.accumulation,
          formatted(
              "makes {} sequences per update (with {}), but train.global_batch = {}{}", accumulated,
              factors, train.global_batch,
              saved != nullptr
                  ? " belongs to this run: leave out accumulation to keep it (any number of ranks that divides it works)"
                  : ": set only one of them"));
    train.global_batch = accumulated;
    train.accumulation = 0;  // global_batch alone keeps the update equal on another rank count
  }
  if (train.global_batch != 0) return "";
  train.global_batch = (kSmallestChosenBatch + sequences - 1) / sequences * sequences;
  return formatted(
      "train.global_batch = {} is chosen: the smallest multiple of {} that is at least {}; set train.accumulation or train.global_batch to change it",
      train.global_batch, factors, kSmallestChosenBatch);
}

/// Makes all paths absolute, so that config.toml is valid in every working directory.
void make_paths_absolute(RunConfig& config) {
  config.data.path = data::absolute_plan(config.data.path);
  config.data.valid_path = data::absolute_plan(config.data.valid_path);
  if (!config.data.stage.empty())
    config.data.stage = std::filesystem::absolute(config.data.stage).lexically_normal().string();
  if (!config.metrics.samples.empty())
    config.metrics.samples =
        std::filesystem::absolute(config.metrics.samples).lexically_normal().string();
  std::error_code absent;
  if (std::string& file = config.parallel.schedule; std::filesystem::is_regular_file(file, absent))
    file = std::filesystem::absolute(file).lexically_normal().string();
  CheckpointConfig& start = config.checkpoint;
  if (start.names_checkpoint()) start.resume = data::absolute_plan(start.resume);
}

}  // namespace

std::string fill_open_values(RunConfig& config, const OpenValueFacts& facts, Problems& problems) {
  if (config.train.precision == "auto") {
    const std::string* saved = saved_value(facts, "train.precision");
    config.train.precision = saved != nullptr ? *saved : facts.has_bf16 ? "bf16" : "fp32";
  }
  const bool is_fp8_precision =
      config.train.precision == "bf16" || config.train.precision == "fp32";
  if (config.train.fp8 != "off" && !is_fp8_precision)
    problems.add(
        "train.precision", config.train.precision,
        formatted("must be bf16 with train.fp8 = {} (on a CPU fp32 is allowed)", config.train.fp8));
  if (config.optim.min_lr < 0) {
    const std::string* saved = saved_value(facts, "optim.min_lr");
    config.optim.min_lr = optim::final_lr(config.optim);
    if (saved != nullptr) config.optim.min_lr = parse_number(*saved).value_or(config.optim.min_lr);
  }
  make_paths_absolute(config);
  return fill_batch(config.train, config.data.batch_phases, facts, problems);
}

}  // namespace trireme::train
