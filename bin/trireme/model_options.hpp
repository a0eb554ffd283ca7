#pragma once
#include "config/command_line.hpp"
#include "generate/load/load_model.hpp"
#include "generate/request.hpp"

namespace trireme {

/// Declares the options of a command that loads a model; `options` must outlive the command.
Command& add_model_options(Command& command, ModelOptions& options);

/// Declares --chat-template; `options` must outlive the command.
Command& add_chat_template_option(Command& command, ModelOptions& options);

/// Declares the sampling options; `sampling` must outlive the command.
Command& add_draw_options(Command& command, SamplingConfig& sampling);

}  // namespace trireme
