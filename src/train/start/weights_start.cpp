#include "train/start/weights_start.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/tokenizer/tokenizer_check.hpp"
#include "core/error.hpp"
#include "text/tokenizer.hpp"
#include "train/state/resume.hpp"

namespace trireme::train {
namespace {

constexpr auto kMayDiffer = std::to_array<std::string_view>(
    {"model.preset", "model.dropout", "model.attention_dropout", "model.max_seq_len",
     "model.router_bias_rate", "model.router_aux_loss", "model.router_aux_loss_coef"});
constexpr auto kFitAnyShape = std::to_array<std::string_view>(
    {"model.rope_theta", "model.local_rope_theta", "model.rope_scaling", "model.norm_eps"});

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

void check_same_model(const RunStart& start, const model::ModelConfig& model,
                      const config::ConfigSet& keys) {
  std::map<std::string, std::string> wanted;
  checkpoint::put_model_values(model, wanted);
  std::string differences;
  for (const auto& [key, value] : wanted) {
    const auto found = start.values.model.find(key);
    const auto has =
        found != start.values.model.end() ? found->second : value_of_older_versions(key);
    const bool is_table = key == "model.max_seq_len" && model.learned_positions();
    if (!has || *has == value || (is_one_of(kMayDiffer, key) && !is_table)) continue;
    const bool by_preset = keys.origin(key).starts_with("preset ");
    if (is_one_of(kFitAnyShape, key) && !by_preset) continue;
    // The router bias is a weight of the model.
    const bool has_bias = *has == "bias" || value == "bias";
    if (key == "model.router_balance" && !has_bias) continue;
    differences +=
        formatted("\n  {} = {} ({}), the weights have {}", key, value, keys.origin(key), *has);
  }
  if (!differences.empty()) {
    fail(
        ErrorKind::usage,
        "this model does not match the weights in {}:{}\nLeave out these keys to take their values from the weights.",
        start.checkpoint, differences);
  }
}

void check_same_adapters(const RunStart& start, const model::LoraConfig& lora,
                         const model::ModelConfig& model) {
  if (!lora.on() || !checkpoint::holds_adapters(start.values.model)) return;
  const model::LoraConfig theirs =
      checkpoint::lora_from_values(start.values.model, start.checkpoint);
  const auto differs = [&](const char* key, const auto& mine, const auto& has) {
    fail(ErrorKind::usage, "{} = {}, but the adapters of {} have {}: give the same value", key,
         mine, start.checkpoint, has);
  };
  if (theirs.rank != lora.rank) differs("lora.rank", lora.rank, theirs.rank);
  if (model::lora_targets(theirs, model) != model::lora_targets(lora, model))
    differs("lora.targets", lora.targets, theirs.targets);
  if (theirs.scale() != lora.scale()) {
    differs("lora.alpha (with lora.rslora)", formatted("{} ({})", lora.alpha, lora.rslora),
            formatted("{} ({})", theirs.alpha, theirs.rslora));
  }
}

namespace {

/// Returns the hash of a model's tokenizer; "" if it is missing or unreadable, which fits any ids.
std::string tokenizer_hash_of(const std::map<std::string, std::string>& files,
                              const std::string& where) {
  const auto file = files.find("tokenizer.json");
  if (file == files.end() || !checkpoint::tokenizer_problem({*file}, where).empty()) return "";
  return text::Tokenizer::from_files({*file}, where).content_hash();
}

}  // namespace

void check_frozen_tokenizer(const std::map<std::string, std::string>& files,
                            const std::string& where, const std::string& role,
                            const std::string& set_tokenizer_hash) {
  const std::string hash = tokenizer_hash_of(files, where);
  if (hash.empty() || hash == set_tokenizer_hash) return;
  fail(
      ErrorKind::usage,
      "{} has another tokenizer than the token set and the model that is trained. One data set is read by both, so a {} must have the trained model's tokenizer: choose another {}, or train a model with the {}'s tokenizer",
      where, role, role, role);
}

void fail_another_tokenizer(const std::string& where) {
  fail(
      ErrorKind::usage,
      "the token set was packed with another tokenizer than that of the weights in {}: pack it with `trireme-data pack --tokenizer {}`",
      where, where);
}

void check_same_tokenizer(const checkpoint::Checkpoint& checkpoint,
                          const std::string& set_tokenizer_hash) {
  if (!checkpoint.has_file("tokenizer.json")) return;
  const std::string where = checkpoint.path().string();
  const std::string hash =
      tokenizer_hash_of({{"tokenizer.json", checkpoint.file("tokenizer.json")}}, where);
  if (!hash.empty() && hash != set_tokenizer_hash) fail_another_tokenizer(where);
}

void check_has_optimizer_state(const checkpoint::Checkpoint& checkpoint,
                               const checkpoint::StateDict& state) {
  for (const checkpoint::StateTensor& tensor : state.tensors) {
    if (!tensor.name.starts_with("optim/")) continue;
    if (checkpoint.manifest().tensors.contains(tensor.name)) continue;
    fail(
        ErrorKind::usage,
        "{} has no {}, which the optimizer of this run needs. To start from the weights only, give --init {} instead of --resume (or --checkpoint.start weights), and --data",
        checkpoint.path().string(), tensor.name, checkpoint.path().string());
  }
}

}  // namespace trireme::train
