#pragma once
#include "config/command_line.hpp"
#include "generate/load_model.hpp"

namespace trireme {

/// Declares the options of a command that uses a model, which `options` must outlive.
Command& add_model_options(Command& command, ModelOptions& options);

}  // namespace trireme
