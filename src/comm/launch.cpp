#include "comm/launch.hpp"

#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"

namespace trireme::comm {

int run_rank(const char* program, const std::function<int()>& body,
             const std::function<void(int code)>& abandon) {
  bool agreed = true;
  const int code = run_main(program, [&] {
    try {
      return body();
    } catch (const PeerFailed& peer) {
      return peer.code();
    } catch (const AgreedError&) {
      throw;
    } catch (...) {
      agreed = false;
      throw;
    }
  });
  if (!agreed && code != kExitDone) abandon(code);
  return code;
}

Launch::Launch(const char* program, int* argc, char*** argv, const CommOptions& options)
    : program_(program),
      argc_(argc),
      argv_(argv),
      options_(options),
      variables_(launcher_variables()) {
  const LauncherRank place = launcher_rank(variables_);
  info_.rank = place.rank;
  info_.size = place.size;
  info_.hostname = this_hostname();
  init_log();
}

void Launch::init_log() const {
  log::Config config;
  config.rank = info_.rank;
  config.size = info_.size;
  log::init(config);
}

void Launch::start(const StartLimit& limit) {
  if (is_alone(variables_)) return start_alone();
  const StartWatch watch(limit, variables_);
  info_ = session_.emplace(argc_, argv_).launch();
  init_log();
  world_ = make_world("auto", info_, options_);
}

void Launch::start_alone() {
  info_ = {};
  info_.hostname = this_hostname();
  world_ = make_world("self", info_, options_);
}

std::unique_ptr<Communicator> Launch::world_with(SharedMemory shared_memory) const {
  if (shared_memory == options_.shared_memory) return nullptr;
  CommOptions options = options_;
  options.shared_memory = shared_memory;
  return make_world("auto", info_, options);
}

int Launch::run(const std::function<int()>& body) const {
  return run_rank(program_, body, [&](int code) {
    if (info_.size == 1 || !session_) return;
    if (before_abort_) before_abort_(code);
    abort_job(code);
  });
}

}  // namespace trireme::comm
