#pragma once
#include <memory>
#include <string_view>

#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// What is trained, as data: everything else (the loop, saving, resume, signals, chain, validation,
/// metrics) is the same for all tasks and knows none of them.
struct Task {
  std::string_view name;      // of the command, and in what a log tells the user to type
  std::string_view set_kind;  // of the token sets that it trains on: "pretrain"
  std::unique_ptr<Objective> (*make_objective)(const RunConfig& config, Transformer& model);
};

extern const Task kPretrain;  // pretrain.cpp

}  // namespace trireme
