#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/load.hpp"
#include "model/config.hpp"

/// A run that starts from weights alone: a checkpoint that `trireme import` made.
namespace trireme {

/// True if the checkpoint holds no training state.
bool is_weights_only(const Checkpoint& checkpoint);

/// The weights-only checkpoint that a run would start from: its own newest in `own`, else the one
/// that checkpoint.resume names; none if that is something else, absent or damaged (the resume says
/// so later).
std::optional<Checkpoint> find_weights_start(const std::filesystem::path& own,
                                             const std::string& resume);

/// Throws Error(usage) naming every field in which `model` would compute something else than the
/// weights were trained for. Dropout and max_seq_len may differ.
void check_same_model(const Checkpoint& checkpoint, const ModelConfig& model);

/// Throws Error(usage) if the weights know another tokenizer than the set's (Tokenizer's
/// content_hash).
void check_same_tokenizer(const Checkpoint& checkpoint, const std::string& set_tokenizer_hash);

}  // namespace trireme
