#pragma once
#include "config/command_line.hpp"
#include "generate/load/load_model.hpp"
#include "generate/request.hpp"

namespace trireme {

/// Declares the options of a command that uses a model; `options` must outlive it.
Command& add_model_options(Command& command, ModelOptions& options);

/// Declares --chat-template of a command that writes chats for the model of `options`, which must outlive
/// it.
Command& add_chat_template_option(Command& command, ModelOptions& options);

/// Declares those of a command that draws tokens; `sampling` must outlive it.
Command& add_draw_options(Command& command, SamplingConfig& sampling);

}  // namespace trireme
