#pragma once
#include <map>
#include <string>

#include "checkpoint/load/load.hpp"
#include "config/config_set.hpp"
#include "train/start/run_start.hpp"

/// A new run that starts from a checkpoint, its state or its weights alone.
namespace trireme {

/// Throws Error(usage) naming every field in which the resolved `model` would not be the one of
/// `start`. Dropout and max_seq_len may differ; rope_theta, rope_scaling and norm_eps, which fit any
/// shape, where they were given for themselves and not by a preset.
void check_same_model(const RunStart& start, const ModelConfig& model, const ConfigSet& keys);

/// Throws Error(usage) if the start holds adapters, and those of the run would be others.
void check_same_adapters(const RunStart& start, const LoraConfig& lora, const ModelConfig& model);

/// Throws Error(usage): the data set does not fit to the weights of the checkpoint or folder `where`.
[[noreturn]] void fail_another_tokenizer(const std::string& where);

/// Throws Error(usage) if the weights know another tokenizer than the set's
/// (Tokenizer's content_hash). A tokenizer that is absent or cannot be read is not compared.
void check_same_tokenizer(const Checkpoint& checkpoint, const std::string& set_tokenizer_hash);

/// Throws Error(usage) if a model beside the trained one (`role`: "teacher", "reference"), whose
/// files are `files` of `where`, has another tokenizer than the data set.
void check_beside_tokenizer(const std::map<std::string, std::string>& files,
                            const std::string& where, const std::string& role,
                            const std::string& set_tokenizer_hash);

/// Throws Error(usage) if a state tensor that the run needs ("optim/...") is not in the checkpoint.
void check_has_moments(const Checkpoint& checkpoint, const StateDict& state);

}  // namespace trireme
