#include "checkpoint/maintenance/average.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeightPrefix = "param/";

/// Values of a model that do not change its function at inference.
constexpr auto kFreeValues = std::to_array<std::string_view>(
    {"model.preset", "model.depth", "model.dropout", "model.attention_dropout", "model.max_seq_len",
     "model.router_bias_rate", "model.router_aux_loss", "model.router_aux_loss_coef"});

std::vector<double> weights_of_models(const AverageCommand& options) {
  const std::size_t count = options.models.size();
  if (options.weights.empty()) return std::vector<double>(count, 1.0 / static_cast<double>(count));
  std::vector<double> weights;
  double sum = 0;
  for (const std::string& text : split(options.weights, ',')) {
    const auto weight = parse_number(text);
    if (!weight)
      fail(ErrorKind::usage, "--weights {}: '{}' is not a number", options.weights, text);
    weights.push_back(*weight);
    sum += *weight;
  }
  if (weights.size() != count)
    fail(ErrorKind::usage, "--weights {} has {} numbers for {} checkpoints: give one number each",
         options.weights, weights.size(), count);
  constexpr double kRounding = 1e-6;
  if (std::abs(sum - 1) > kRounding)
    fail(ErrorKind::usage, "--weights {} have the sum {}, must have the sum 1", options.weights,
         number_text(sum));
  return weights;
}

std::map<std::string, std::string> model_values_of(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : checkpoint.manifest().values)
    if (is_model_value(key)) values.emplace(key, value);
  return values;
}

std::string text_of_shape(const SavedTensor& tensor) {
  return formatted("[{}]", joined(tensor.shape, ", "));
}

/// Throws Error(usage) if the weights of `other` do not match those of `first`.
void check_same_weights(const Checkpoint& first, const Checkpoint& other) {
  const auto& wanted = first.manifest().tensors;
  const auto& found = other.manifest().tensors;
  for (const auto& [name, tensor] : wanted) {
    if (!name.starts_with(kWeightPrefix)) continue;
    const auto same = found.find(name);
    if (same == found.end())
      fail(ErrorKind::usage, "{} has no {}, which {} has: average checkpoints of one model",
           other.path().string(), name, first.path().string());
    if (same->second.shape != tensor.shape)
      fail(ErrorKind::usage,
           "{} has the shape {} in {}, but {} in {}: average checkpoints of one "
           "model",
           name, text_of_shape(same->second), other.path().string(), text_of_shape(tensor),
           first.path().string());
  }
  for (const auto& [name, tensor] : found) {
    if (name.starts_with(kWeightPrefix) && !wanted.contains(name))
      fail(ErrorKind::usage, "{} has no {}, which {} has: average checkpoints of one model",
           first.path().string(), name, other.path().string());
  }
}

/// Throws Error(usage) if another value of the model or another tokenizer makes the mean useless.
void check_same_values(const Checkpoint& first, const Checkpoint& other) {
  const auto values = model_values_of(first);
  for (const auto& [key, value] : model_values_of(other)) {
    const auto same = values.find(key);
    const bool is_free =
        std::find(kFreeValues.begin(), kFreeValues.end(), key) != kFreeValues.end();
    if (is_free || same == values.end() || same->second == value) continue;
    fail(ErrorKind::usage, "{} is {} in {}, but {} in {}: average checkpoints of one model", key,
         value, other.path().string(), same->second, first.path().string());
  }
  constexpr const char* kTokenizer = "tokenizer.json";
  if (first.has_file(kTokenizer) && other.has_file(kTokenizer) &&
      first.file(kTokenizer) != other.file(kTokenizer))
    fail(ErrorKind::usage, "{} and {} have different tokenizers: average checkpoints of one model",
         other.path().string(), first.path().string());
}

std::vector<Checkpoint> open_models(const AverageCommand& options) {
  if (options.models.size() < (options.ema ? 1 : 2))
    fail(ErrorKind::usage, "checkpoint average needs two checkpoints or more, and got {}",
         options.models.size());
  std::vector<Checkpoint> models;
  for (const std::string& place : options.models) {
    const Checkpoint model = open_newest_good(place, options.allow_older);
    if (holds_adapters(model))
      fail(ErrorKind::usage,
           "{} holds LoRA adapters, and the mean of adapters is not the mean of their models: "
           "merge each one first (`{}`, then `trireme import --hf`){}",
           model.path().string(), options.ema ? "trireme export --ema" : "trireme export",
           options.ema ? ", and leave out --ema" : "");
    models.push_back(options.ema ? model.with_ema_weights() : model);
    if (models.size() == 1) continue;
    check_same_weights(models.front(), models.back());
    check_same_values(models.front(), models.back());
  }
  return models;
}

/// Returns the weighted mean of one tensor in the dtype of the first model.
std::vector<std::byte> mean_of(const std::vector<Checkpoint>& models,
                               const std::vector<double>& weights, const std::string& name) {
  const SavedTensor& tensor = models.front().manifest().tensors.at(name);
  const auto count = static_cast<std::size_t>(tensor.count());
  std::vector<double> sum(count);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < models.size(); ++i) {
    convert_floats(models[i].manifest().tensors.at(name).dtype, models[i].read_logical(name),
                   DType::f64, std::as_writable_bytes(std::span(values)));
    for (std::size_t k = 0; k < count; ++k) sum[k] += weights[i] * values[k];
  }
  std::vector<std::byte> mean(count * size_of(tensor.dtype));
  convert_floats(DType::f64, std::as_bytes(std::span(sum)), tensor.dtype, mean);
  return mean;
}

}  // namespace

std::string checkpoint_average(const AverageCommand& options) {
  const std::vector<double> weights = weights_of_models(options);
  const std::vector<Checkpoint> models = open_models(options);
  const fs::path run = options.output;
  const fs::path directory = run / "checkpoints";
  std::error_code absent;
  if (fs::exists(run, absent) && !list_directory(run).empty())
    fail(ErrorKind::usage, "--output {} is not empty: choose a new run directory", options.output);
  const Checkpoint& first = models.front();
  StateDict state;
  state.values = model_values_of(first);
  state.values["step"] = "0";
  for (const SavedFile& file : first.manifest().files)
    if (file.name != "config.toml") state.files[file.name] = first.file(file.name);
  std::map<std::string, std::vector<std::byte>> means;
  Hasher content;
  for (const auto& [name, tensor] : first.manifest().tensors) {
    if (!name.starts_with(kWeightPrefix)) continue;
    std::vector<std::byte>& mean = means[name] = mean_of(models, weights, name);
    content.update(mean);
    state.tensors.push_back({name, tensor.dtype, tensor.shape, parallel::Slice::whole(tensor.shape),
                             mean, /*owner=*/true});
  }
  const RunLock lock(run, RunLockOptions{});
  comm::SelfCommunicator alone;
  const fs::path written = save_checkpoint(
      directory, 0, state, alone, {.run_id = formatted("average-{}", content.hex().substr(0, 16))});
  return formatted("{} -> {}\n",
                   joined(models, ", ", [](const Checkpoint& one) { return one.path().string(); }),
                   written.string());
}

}  // namespace trireme::checkpoint
