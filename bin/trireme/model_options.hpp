#pragma once
#include "config/command_line.hpp"
#include "generate/load/load_on_ranks.hpp"
#include "generate/request.hpp"

namespace trireme {

/// Declares the options of a command that loads a model; `options` must outlive the command.
/// `need` tells if --checkpoint is required.
config::Command& add_model_options(config::Command& command, generate::ModelOptions& options,
                                   config::Need need = config::Need::required);

/// Declares --weights; `options` must outlive the command.
config::Command& add_weights_option(config::Command& command, generate::ModelOptions& options);

/// Declares --parallel.tp and --parallel.pp; `layout` must outlive the command.
config::Command& add_layout_options(config::Command& command, generate::ModelLayout& layout);

/// Declares --chat-template; `options` must outlive the command.
config::Command& add_chat_template_option(config::Command& command,
                                          generate::ModelOptions& options);

/// Declares --cuda-graph; `mode` must outlive the command.
config::Command& add_cuda_graph_option(config::Command& command, std::string& mode);

/// Declares the sampling options; `sampling` must outlive the command.
config::Command& add_draw_options(config::Command& command, generate::SamplingConfig& sampling);

}  // namespace trireme
