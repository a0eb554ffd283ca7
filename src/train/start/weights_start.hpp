#pragma once
#include <map>
#include <string>

#include "checkpoint/load/load.hpp"
#include "config/config_set.hpp"
#include "train/start/run_start.hpp"

/// These functions check a new run that starts from a checkpoint: from the training state or only
/// from the weights.
namespace trireme::train {

/// Throws Error(usage) if the resolved `model` differs from the model of `start`; the message
/// names every field. Dropout and, without learned positions, max_seq_len may differ. rope_theta,
/// rope_scaling and norm_eps may differ if they were set directly and not by a preset.
void check_same_model(const RunStart& start, const model::ModelConfig& model,
                      const config::ConfigSet& keys);

/// Throws Error(usage) if the start holds adapters that differ from the adapters of the run.
void check_same_adapters(const RunStart& start, const model::LoraConfig& lora,
                         const model::ModelConfig& model);

/// Throws Error(usage): the data set does not match the weights in `where` (checkpoint or
/// directory).
[[noreturn]] void fail_another_tokenizer(const std::string& where);

/// Throws Error(usage) if the tokenizer of the weights has another content_hash than the data set.
/// A missing or unreadable tokenizer is not compared.
void check_same_tokenizer(const checkpoint::Checkpoint& checkpoint,
                          const std::string& set_tokenizer_hash);

/// Throws Error(usage) if a frozen model has another tokenizer than the data set. `role`:
/// "teacher" or "reference"; `files`: files of the model, by name; `where`: its path.
void check_frozen_tokenizer(const std::map<std::string, std::string>& files,
                            const std::string& where, const std::string& role,
                            const std::string& set_tokenizer_hash);

/// Throws Error(usage) if the checkpoint lacks a tensor of the optimizer state ("optim/...").
void check_has_optimizer_state(const checkpoint::Checkpoint& checkpoint,
                               const checkpoint::StateDict& state);

}  // namespace trireme::train
