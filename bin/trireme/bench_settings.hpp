#pragma once
#include <memory>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "train/start/run_keys.hpp"
#include "train/verify/bench_step.hpp"

namespace trireme {

/// Settings of the benchmarks that train a configured model on synthetic tokens, without a run.
struct BenchSettings {
  train::StepBench bench;
  std::unique_ptr<config::ConfigSet> keys = train::make_run_keys(bench.config);
  bool json = false;

  /// Fills in defaults and checks the keys.
  void complete(config::ConfigSet& values);

  /// Sets up this process and resolves the settings that depend on the number of ranks. Returns the
  /// communicator of the training; null if it is the world of `launch`. Throws Error(usage) if the
  /// ranks cannot train this layout, Error(resource) if memory is too small. Collective.
  std::unique_ptr<comm::Communicator> prepare(comm::Launch& launch);
};

}  // namespace trireme
