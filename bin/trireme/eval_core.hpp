#pragma once
#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "generate/load/load_model.hpp"

namespace trireme {

struct CoreEvaluation {
  std::string bundle;
  std::int64_t max_per_task = 0;  // 0: all items
  std::string predictions;        // a file; empty: none
  std::int64_t batch = 0;         // items in one forward pass
  bool json = false;
};

/// Evaluates CORE and writes the predictions. Returns what the command prints: a table, or with
/// `json` one JSON document; empty except on rank 0. Collective over `world`.
std::string core_text(const CoreEvaluation& evaluation, generate::LoadedModel& model,
                      comm::Communicator& world);

}  // namespace trireme
