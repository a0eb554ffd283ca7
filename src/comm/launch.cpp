#include "comm/launch.hpp"

#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "comm/launchers.hpp"
#include "core/log.hpp"
#include "core/process/run_main.hpp"

namespace trireme {

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
    : program_(program) {
  if (!launcher_variables().empty()) {
    info_ = session_.emplace(argc, argv).launch();
  } else {
    info_.hostname = this_hostname();
  }
  log::Config config;
  config.rank = info_.rank;
  config.size = info_.size;
  log::init(config);
  world_ = make_world("auto", info_, options);
}

int Launch::run(const std::function<int()>& body) const {
  return run_rank(program_, body, [&](int code) {
    if (info_.size == 1) return;
    if (tell_) tell_(code);
    abort_job(code);
  });
}

}  // namespace trireme
