#include "bin/trireme/bench_settings.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "bin/trireme/training_world.hpp"
#include "comm/agree.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "data/loader.hpp"
#include "device/device.hpp"
#include "device/kernel_choice.hpp"
#include "train/audit/layout_record.hpp"
#include "train/config/layout.hpp"
#include "train/config/open_values.hpp"
#include "train/health/memory_need.hpp"
#include "train/start/resolve_config.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kVocabulary = 6400;  // used if model.vocab_size is not set
constexpr std::int64_t kLength = 512;

/// Resolves model shape, batch sizes and device.
void resolve_settings(BenchSettings& settings, const comm::LaunchInfo& launch, int ranks) {
  train::RunConfig& config = settings.bench.config;
  train::TrainConfig& train = config.train;
  model::resolve(config.model, config.model.vocab_size > 0 ? config.model.vocab_size : kVocabulary);
  if (train.seq_len == 0) train.seq_len = std::min(kLength, config.model.max_seq_len);
  if (train.seq_len > config.model.max_seq_len) {
    fail(ErrorKind::usage, "train.seq_len = {}, must be at most model.max_seq_len = {}",
         train.seq_len, config.model.max_seq_len);
  }
  Problems problems;
  train::check_layout(config.parallel,
                      {config.model, {train.seq_len}, ranks, std::nullopt, train.fp8_mode()},
                      problems);
  train::check_fp8_linears(config, problems);
  model::check_targets(config.lora, config.model, problems);
  problems.throw_if_any();
  const int data = parallel::data_ranks(config.parallel, ranks);
  if (train.global_batch == 0 && train.accumulation == 0) train.accumulation = 1;
  train::fill_open_values(config, {data}, problems);
  problems.throw_if_any();
  train.accumulation = data::accumulation_steps_of(train.global_batch, train.micro_batch, data);
  train::check_micro_batches(config.parallel, train.accumulation);
  settings.bench.device = device::choose_device(train.device, launch.local_rank);
  device::use_deterministic_kernels(settings.bench.device, train.deterministic);
  train::check_fp8_device(train, settings.bench.device);
  train::check_free_memory(config, launch, ranks, *settings.keys);
}

void warn_of_idle_keys(const BenchSettings& settings) {
  const std::string idle = train::keys_without_effect(settings.bench.config.parallel);
  if (!idle.empty()) log::warn(idle);
  std::vector<std::string> unread;
  for (const std::string& key : settings.keys->keys())
    if ((key.starts_with("data.") || key.starts_with("checkpoint.")) && settings.keys->is_set(key))
      unread.push_back(key);
  if (!unread.empty())
    log::warn(
        formatted("keys without effect, because this command uses synthetic tokens and weights: {}",
                  joined(unread, ", ")));
}

}  // namespace

void BenchSettings::complete(config::ConfigSet& values) {
  train::RunConfig& config = bench.config;
  const train::TrainConfig& train = config.train;
  if (config.model.num_heads == 0 && config.model.preset.empty())
    values.set("model.preset", "tiny", "default");
  train::finish_run_keys(config, values);
  if (bench.steps < 1) values.problems().add("--steps", bench.steps, "must be 1 or more");
  if (train.seq_len != 0 && train.seq_len < 2)
    values.problems().add("train.seq_len", train.seq_len, "must be 2 or more");
}

std::unique_ptr<comm::Communicator> BenchSettings::prepare(comm::Launch& launch) {
  comm::Communicator& world = launch.world();
  std::int64_t& threads = bench.config.train.threads;
  threads = device::set_cpu_threads(threads, launch.info().local_size);
  comm::all_or_none(world, [&] { resolve_settings(*this, launch.info(), world.size()); });
  if (world.rank() == 0) warn_of_idle_keys(*this);
  return training_world(launch, bench.device.is_cuda(), bench.config.parallel);
}

}  // namespace trireme
