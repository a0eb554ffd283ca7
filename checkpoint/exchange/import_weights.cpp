#include "checkpoint/exchange/import_weights.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "checkpoint/tokenizer/tokenizer_check.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "text/chat/jinja_chat.hpp"
#include "text/spec/vocab_files.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kOutput = "lm_head.weight";

/// Lists the files that a tokenizer needs. Other files (other weight formats, images) are not
/// copied.
constexpr const char* kCarried[] = {
    "tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json",
    kGenerationConfigFile, "chat_template.jinja",   "vocab.json",
    "merges.txt",          "added_tokens.json"};

void check_weights(const WeightSource& weights, const std::vector<NamedShape>& tensors, bool tied,
                   const std::string& where) {
  std::string problems;
  std::set<std::string> known;
  for (const NamedShape& tensor : tensors) {
    known.insert(tensor.name);
    const auto found = weights.find(tensor.name);
    if (found == weights.end()) {
      problems += formatted("\n  missing: {}", tensor.name);
      continue;
    }
    const WeightTensor& weight = found->second;
    if (weight.shape != tensor.shape)
      problems += formatted("\n  {}: shape [{}], the model's is [{}]", tensor.name,
                            joined(weight.shape, ", "), joined(tensor.shape, ", "));
    if (!is_float(weight.dtype))
      problems +=
          formatted("\n  {}: dtype {} is not supported", tensor.name, dtype_name(weight.dtype));
  }
  for (const auto& [name, weight] : weights) {
    // Both tensors follow from the others: some writers store the tied output matrix again, and old
    // writers store the rotary frequencies.
    const bool redundant = (tied && name == kOutput) || name.ends_with(".rotary_emb.inv_freq");
    if (!known.contains(name) && !redundant) problems += formatted("\n  extra: {}", name);
  }
  if (!problems.empty()) fail(ErrorKind::data, "{} cannot be imported:{}", where, problems);
}

/// Returns the expected tensors: stacked experts if the directory contains the stack, else
/// separate.
std::vector<NamedShape> expected_tensors(const model::ModelConfig& config,
                                         const WeightSource& weights) {
  std::map<std::string, std::vector<std::int64_t>> stacks;
  for (const NamedShape& parameter : model_tensors(config))
    stacks.emplace(parameter.name, parameter.shape);
  std::vector<NamedShape> expected;
  for (const HfTensor& tensor : hf_tensors(config)) {
    if (!tensor.is_part() || !weights.contains(tensor.parameter)) {
      expected.push_back({tensor.name, tensor.shape});
    } else if (tensor.begin == 0) {
      expected.push_back({tensor.parameter, hf_stack_shape(stacks.at(tensor.parameter))});
    }
  }
  return expected;
}

/// Returns a float32 parameter that stacks separate experts.
WeightTensor stacked(const NamedShape& parameter, const std::vector<HfTensor>& parts,
                     const WeightSource& weights) {
  std::vector<std::pair<HfTensor, WeightTensor>> own;
  for (const HfTensor& part : parts) {
    if (part.parameter == parameter.name) own.emplace_back(part, weights.at(part.name));
  }
  return {DType::f32, parameter.shape, [own](std::span<std::byte> bytes) {
            for (const auto& [part, tensor] : own) {
              const std::vector<std::byte> elements = read_f32(tensor, part.name);
              const std::size_t begin = static_cast<std::size_t>(part.begin) * sizeof(float);
              std::ranges::copy(elements, bytes.subspan(begin).begin());
            }
          }};
}

/// Gives every parameter of the model its own name and shape in `weights`.
void stack_experts(const model::ModelConfig& config, WeightSource& weights) {
  if (!config.moe.on()) return;
  const std::vector<HfTensor> parts = hf_tensors(config);
  for (const NamedShape& parameter : model_tensors(config)) {
    const auto found = weights.find(parameter.name);
    if (found == weights.end()) {
      weights.emplace(parameter.name, stacked(parameter, parts, weights));
    } else {
      found->second.shape = parameter.shape;
    }
  }
}

std::vector<std::byte> raw(const WeightTensor& tensor) {
  std::size_t bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::size_t>(size);
  std::vector<std::byte> elements(bytes);
  tensor.read(elements);
  return elements;
}

/// transformers does not tie different matrices, even if config.json asks for it.
bool has_another_output_matrix(const WeightSource& weights) {
  return weights.contains(kEmbedding) && weights.contains(kOutput) &&
         raw(weights.at(kEmbedding)) != raw(weights.at(kOutput));
}

}  // namespace

WeightSource weights_of(
    const std::map<std::string, std::shared_ptr<const SafetensorsFile>>& tensors) {
  WeightSource weights;
  for (const auto& [name, file] : tensors) {
    const SafetensorsEntry& entry = file->entries().at(name);
    weights[name] = {entry.dtype, entry.shape,
                     [file, name](std::span<std::byte> bytes) { file->read(name, bytes); }};
  }
  return weights;
}

std::map<std::string, std::string> tokenizer_files_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const char* name : kCarried) {
    if (fs::exists(directory / name)) files[name] = read_file(directory / name);
  }
  // tokenizer_problem reports the error of files that cannot be converted.
  (void)comm::capture([&] { text::add_tokenizer_json(files, directory.string()); });
  return files;
}

std::vector<std::byte> read_f32(const WeightTensor& tensor, const std::string& name) {
  const std::vector<std::byte> elements = raw(tensor);
  std::vector<std::byte> converted(elements.size() / size_of(tensor.dtype) * size_of(DType::f32));
  convert_floats(tensor.dtype, elements, DType::f32, converted);
  const std::span values(reinterpret_cast<const float*>(converted.data()),
                         converted.size() / sizeof(float));
  if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
    fail(ErrorKind::data, "{} contains values that are not finite (NaN or infinity)", name);
  return converted;
}

/// Checks the number of experts first, so that a number in a damaged file cannot allocate memory.
/// Separate experts have three tensors each; a stack has all experts.
void check_num_experts(const ImportedModel& model, const WeightSource& weights) {
  const std::int64_t num_experts = model.config.moe.num_experts;
  const auto stack = std::ranges::find_if(weights, [](const auto& weight) {
    return weight.first.ends_with("mlp.experts.gate_up_proj");
  });
  const std::int64_t layers = model.config.moe.layers_with_experts(model.config.num_layers);
  if (stack == weights.end() ? 3 * num_experts * layers <= std::ssize(weights)
                             : stack->second.shape.front() == num_experts)
    return;
  fail(ErrorKind::data, "{}: {} experts in {} layers, but the weights are {}", model.where,
       num_experts, layers,
       stack == weights.end() ? formatted("{} tensors in all", weights.size())
                              : formatted("of {}", stack->second.shape.front()));
}

std::vector<NamedShape> checked_tensors(ImportedModel& model, WeightSource& weights) {
  model::ModelConfig& config = model.config;
  if (config.num_layers > static_cast<std::int64_t>(weights.size())) {
    fail(ErrorKind::data, "{}: num_hidden_layers = {}, but the weights are {} tensors in all",
         model.where, config.num_layers, weights.size());
  }
  if (config.moe.on()) check_num_experts(model, weights);
  if (config.tie_embeddings && has_another_output_matrix(weights)) {
    config.tie_embeddings = false;
    if (model.logs)
      log::warn(formatted(
          "{}: tie_word_embeddings is true, but lm_head.weight is not the embedding: imported untied, as transformers loads it",
          model.where));
  }
  check_weights(weights, expected_tensors(config, weights), config.tie_embeddings, model.where);
  check_tokenizer_fits(num_token_ids(model.files, model.where), config, model.where);
  stack_experts(config, weights);
  return model_tensors(config);
}

namespace {

/// Adds the name of the chat template to the values.
void note_template(ImportedModel& model) {
  const std::string chat = put_imported_template(model.files, model.values);
  if (chat.empty() || !model.logs) return;
  if (const std::string refusal = refusal_of_files(model.files, model.where); !refusal.empty())
    return log::warn(refusal);
  const std::string note = template_note(chat, model.where);
  is_custom_template(chat) ? log::warn(note) : log::info(note);
}

/// Checks everything except the elements of the weights, and completes the values.
std::vector<NamedShape> check_model(ImportedModel& model, WeightSource& weights) {
  std::vector<NamedShape> tensors = checked_tensors(model, weights);
  if (model.logs)  // another rank has checked it
    check_imported_tokenizer(model.files, model.where, model.require_tokenizer);
  note_template(model);
  put_model_values(model.config, model.values);
  model.values.emplace("step", "0");
  return tensors;
}

/// A checked model, ready to be written.
struct CheckedModel {
  StateDict state;
  std::string run_id;
};

/// Reads all elements to check them. Collective.
CheckedModel check_import(ImportedModel model, WeightSource source, comm::Communicator& world) {
  const auto weights = std::make_shared<WeightSource>(std::move(source));
  std::vector<NamedShape> tensors;
  comm::on_first_rank_then_others(world, [&] { tensors = check_model(model, *weights); });
  const std::vector<std::string> hashes =
      comm::distribute_work(world, num_elements(tensors), [&](std::size_t i) {
        Hasher hash;
        hash.update(read_f32(weights->at(tensors[i].name), tensors[i].name));
        return hash.hex();
      });
  CheckedModel checked{{{}, std::move(model.values), std::move(model.files)},
                       formatted("import-{}", xxh3_128_hex(joined(hashes, "\n")).substr(0, 16))};
  for (const auto& [name, shape] : tensors) {
    checked.state.tensors.push_back({.name = formatted("param/{}", name),
                                     .shape = shape,
                                     .slice = parallel::Slice::whole(shape),
                                     .produce = [name, weights](std::span<std::byte> bytes) {
                                       std::ranges::copy(read_f32(weights->at(name), name),
                                                         bytes.begin());
                                     }});
  }
  checked.state.tensors = share_of_rank(std::move(checked.state.tensors), world);
  return checked;
}

}  // namespace

fs::path write_imported(ImportedModel model, WeightSource weights, const fs::path& directory,
                        comm::Communicator& world) {
  const CheckedModel checked = check_import(std::move(model), std::move(weights), world);
  return save_checkpoint(directory, 0, checked.state, world, {.run_id = checked.run_id});
}

fs::path save_imported(ImportedModel model, WeightSource weights, const fs::path& directory) {
  comm::SelfCommunicator alone;
  const CheckedModel checked = check_import(std::move(model), std::move(weights), alone);
  // If two imports write to one directory, the second is refused.
  const RunLock lock(locked_directory(directory), RunLockOptions{});
  return save_checkpoint(directory, 0, checked.state, alone, {.run_id = checked.run_id});
}

}  // namespace trireme::checkpoint
