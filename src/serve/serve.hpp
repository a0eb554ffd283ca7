#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "generate/engine_config.hpp"
#include "generate/load/load_model.hpp"

namespace trireme {

/// What `trireme serve` is told.
struct ServeOptions {
  ModelOptions model;
  std::string model_name;  // "": the run's or folder's name
  std::string host = "127.0.0.1";
  std::int64_t port = 8000;  // 0: any free one
  std::string token;
  std::string token_file;
  EngineConfig engine{.max_queue = 256};
  double request_timeout_s = 600;
  double drain_s = 30;
};

/// Serves a checkpoint until a stop signal, then lets the answers that are being made end within
/// drain_s. `ready` is told the URL once requests are answered. Throws Error(usage) for options that
/// cannot be, among them an address beyond this machine without a token; errors of load_model and of
/// GenerationEngine; and what ends the engine.
void serve(const ServeOptions& options, const std::function<void(const std::string& url)>& ready);

}  // namespace trireme
