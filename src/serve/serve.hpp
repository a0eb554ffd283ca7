#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "generate/engine_config.hpp"
#include "generate/load/load_on_ranks.hpp"

namespace trireme::serve {

/// Options of `trireme serve`.
struct ServeOptions {
  generate::ModelOptions model;
  generate::ModelLayout layout;
  std::string model_name;  // empty: the name of the run or directory
  std::string host = "127.0.0.1";
  std::int64_t port = 8000;  // 0 selects any free port
  std::string token;
  std::string token_file;
  std::vector<std::string> cors_origins;
  generate::EngineConfig engine{.max_queue = 256};
  double request_timeout_s = 600;
  double drain_s = 30;
};

/// Serves a model until a stop signal arrives. Collective. Rank 0 has the HTTP server and the
/// engine; the other ranks compute their part of each step and ignore stop signals. Returns the
/// exit code. Then running answers have drain_s seconds to finish.
/// Calls `ready` with the URL when the server can answer requests. Throws Error(usage) for invalid
/// options, for example if other machines can reach the address but no token is set. Also throws
/// the errors of load_model and of GenerationEngine, and any error that ends the engine.
int serve(const ServeOptions& options, const generate::ModelRank& place,
          const std::function<void(const std::string& url)>& ready);

}  // namespace trireme::serve
