#include "checkpoint/peft/peft.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/import_weights.hpp"
#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/exchange/whole_directory.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/export_files.hpp"
#include "checkpoint/hf/family_tensors.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/hf_reader.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::array kHalves{".lora_A.weight", ".lora_B.weight"};
constexpr std::string_view kParam = "param/";

/// Returns the name in transformers of a tensor of an adapter. `family`: null if no family can
/// express the model.
std::string peft_name(const Family* family, const std::string& name) {
  return family == nullptr ? name : family_tensor_name(*family, name);
}

/// Returns the last component of the name in transformers of a linear: "c_fc".
std::string peft_target(const Family* family, const model::LinearShape& linear) {
  std::string name = peft_name(family, cat(".", linear.module, "."));
  name.pop_back();
  return name.substr(name.rfind('.') + 1);
}

std::vector<std::string> target_names(const model::LoraConfig& lora,
                                      const model::ModelConfig& model, const Family* family) {
  const model::LinearShapes linears = model::block_linears(model);
  const auto targeted = model::lora_targets(lora, model);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < linears.size(); ++i) {
    if (targeted[i]) names.push_back(peft_target(family, linears[i]));
  }
  return names;
}

std::string config_text(const model::LoraConfig& lora, const std::vector<std::string>& targets,
                        const std::string& base_name) {
  Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = base_name.empty() ? Json(nullptr) : Json(base_name);
  const double alpha = lora.alpha == 0 ? static_cast<double>(lora.rank) : lora.alpha;
  json["r"] = lora.rank;
  json["lora_alpha"] = alpha;
  if (alpha == std::floor(alpha) && alpha < 1e15)
    json["lora_alpha"] = static_cast<std::int64_t>(alpha);
  json["lora_dropout"] = lora.dropout;
  json["use_rslora"] = lora.rslora;
  json["target_modules"] = targets;
  json["bias"] = "none";
  json["fan_in_fan_out"] = false;
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  return json.dump(2) + "\n";
}

/// Reads LoraConfig. Throws Error(data) naming every setting that is not plain LoRA.
model::LoraConfig lora_in(const Json& config, const std::string& where) {
  if (!config.is_object()) fail(ErrorKind::data, "{}: not a JSON object", where);
  HfReader reader(config, where);
  if (config.value("peft_type", Json()) != "LORA")
    reader.problem("peft_type",
                   formatted(" = {}, must be \"LORA\"", config.value("peft_type", Json()).dump()));
  if (const Json bias = config.value("bias", Json("none")); bias != "none")
    reader.problem("bias", formatted(" = {}, must be \"none\"", bias.dump()));
  for (const char* key :
       {"use_dora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern",
        "lora_bias", "trainable_token_indices", "layer_replication", "target_parameters",
        "use_qalora", "alora_invocation_tokens", "arrow_config", "layers_to_transform"}) {
    reader.must_be_off(key);
  }
  model::LoraConfig lora;
  lora.rank = reader.size("r");
  lora.alpha = reader.number(config, "lora_alpha", 8);
  lora.rslora = reader.flag("use_rslora", false);
  lora.dropout = reader.number(config, "lora_dropout", 0);
  if (lora.alpha <= 0)
    reader.problem("lora_alpha", formatted(" = {}, must be above 0", number_text(lora.alpha)));
  if (!(lora.dropout >= 0 && lora.dropout < 1))
    reader.problem("lora_dropout",
                   formatted(" = {}, must be in [0, 1)", number_text(lora.dropout)));
  // Other initializations change the base that the adapters belong to ("pissa", "olora", "loftq",
  // "corda").
  const Json begun = config.value("init_lora_weights", Json(true));
  if (!begun.is_boolean() && !begun.is_null() && begun != "gaussian" && begun != "orthogonal")
    reader.problem(
        "init_lora_weights",
        formatted(" = {} is not supported: it changes the base of the adapters", begun.dump()));
  reader.raise();
  return lora;
}

/// Throws Error(data) if the list "target_modules" omits a linear that has adapters: PEFT would not
/// load them.
void check_named(const Json& config, const std::vector<std::string>& targets,
                 const std::string& where) {
  const Json named = config.value("target_modules", Json());
  if (!named.is_array()) return;
  for (const std::string& target : targets) {
    const bool is_named = std::any_of(named.begin(), named.end(), [&](const Json& one) {
      return one.is_string() &&
             (one.get<std::string>() == target || one.get<std::string>().ends_with("." + target));
    });
    if (!is_named)
      fail(ErrorKind::data, "{}: target_modules {} omits {}, but the file has adapters for it",
           where, named.dump(), target);
  }
}

/// Returns the tensors by their names in our checkpoints, without "param/".
WeightSource adapter_weights(const fs::path& directory, const model::ModelConfig& model,
                             const Family* family) {
  const fs::path path = directory / kWeightsFile;
  const auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path));
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> tensors;
  for (const auto& [name, entry] : file->entries()) tensors.emplace(name, file);
  WeightSource weights;
  for (auto& [name, tensor] : weights_of(tensors)) {
    if (!name.starts_with(kPrefix))
      fail(ErrorKind::data, "{}: tensor '{}' does not begin with {}", path.string(),
           name.substr(0, 200), kPrefix);
    weights[name.substr(kPrefix.size())] = std::move(tensor);
  }
  WeightSource own;
  for (const LoraAdapter& adapter : lora_adapters({.rank = 1}, model)) {
    for (const char* half : kHalves) {
      auto node = weights.extract(peft_name(family, adapter.module + half));
      if (node.empty()) continue;
      node.key() = adapter.module + half;
      own.insert(std::move(node));
    }
  }
  own.merge(weights);  // unknown tensors, which check_fit names
  return own;
}

/// Returns the last component of the names of the modules that have an adapter.
std::vector<std::string> targets_in(const WeightSource& weights, const model::ModelConfig& model) {
  std::vector<std::string> names;
  for (const model::LinearShape& linear : model::block_linears(model)) {
    const bool is_there = std::any_of(weights.begin(), weights.end(), [&](const auto& one) {
      return one.first.find(cat(".", linear.module, ".lora_")) != std::string::npos;
    });
    if (is_there) names.emplace_back(linear.name());
  }
  return names;
}

void check_fit(const WeightSource& weights, const std::vector<LoraAdapter>& adapters,
               std::int64_t rank, const std::string& where) {
  std::string problems = tensor_problems(weights, adapter_tensors(adapters, rank), "", kPrefix);
  if (adapters.empty()) problems += "\n  no adapter for any linear of the blocks";
  if (!problems.empty())
    fail(ErrorKind::data, "{}: its adapters of rank {} do not fit the base:{}", where, rank,
         problems);
}

/// Replaces the chat template if the adapter directory has one.
void take_template(const fs::path& directory, StateDict& state) {
  const auto files = tokenizer_files_of(directory);
  if (put_imported_template(files, state.values).empty()) return;
  state.files["chat_template.jinja"] = jinja_of(files);
}

}  // namespace

void export_peft(const Checkpoint& checkpoint, const fs::path& directory, comm::Communicator& world,
                 DType dtype, const std::string& base_name) {
  const std::string where = checkpoint.path().string();
  TRIREME_ASSERT(holds_adapters(checkpoint));
  const model::ModelConfig config = model_from_values(checkpoint.manifest().values, where);
  const Family* family = fitting_family(config, family_value(checkpoint));
  if (const std::string why = hf_adapter_problem(family, config); !why.empty())
    fail(ErrorKind::usage, "--adapter: {}: {}; export the merged model without --adapter", where,
         why);
  const model::LoraConfig lora = lora_of(checkpoint);
  const std::vector<LoraAdapter> adapters = lora_adapters(lora, config);
  check_adapters(checkpoint, adapters, lora.rank);
  std::vector<SafetensorsSource> sources;
  for (const LoraAdapter& adapter : adapters) {
    for (const char* half : kHalves) {
      const std::string name = adapter.module + half;
      const auto& saved = checkpoint.manifest().tensors.at(cat(kParam, name));
      sources.push_back({cat(kPrefix, peft_name(family, name)), dtype, saved.shape,
                         [&checkpoint, name, dtype, from = saved.dtype](std::span<std::byte> to) {
                           convert_floats(from, checkpoint.read_logical(cat(kParam, name)), dtype,
                                          to);
                         }});
    }
  }
  write_whole_directory(directory, world, [&](const fs::path& temporary) {
    write_checked_file(temporary / kWeightsFile, sources, world);
    comm::on_first_rank(world, [&] {
      write_file_atomic(temporary / kConfigFile,
                        config_text(lora, target_names(lora, config, family), base_name));
      for (const auto& [name, content] : exported_tokenizer(checkpoint))
        write_file_atomic(temporary / name, content);
    });
  });
}

PeftAdapters read_peft(const fs::path& directory,
                       const std::map<std::string, std::string>& base_values,
                       const std::map<std::string, std::string>& base_files,
                       const std::string& where) {
  const fs::path config_path = directory / kConfigFile;
  const Json config = read_json(config_path);
  model::LoraConfig lora = lora_in(config, config_path.string());
  const model::ModelConfig model = model_from_values(base_values, where);
  const auto stored = base_values.find(kHfFamilyValue);
  const Family* family = fitting_family(model, stored == base_values.end() ? "" : stored->second);
  if (const std::string why = hf_adapter_problem(family, model); !why.empty())
    fail(ErrorKind::data, "{} cannot be imported: {}", directory.string(), why);
  const WeightSource weights = adapter_weights(directory, model, family);
  lora.targets = joined(targets_in(weights, model), ",");
  const std::vector<LoraAdapter> adapters = lora_adapters(lora, model);
  check_named(config, target_names(lora, model, family), config_path.string());
  check_fit(weights, adapters, lora.rank, directory.string());
  PeftAdapters read;
  for (const auto& [key, value] : base_values) {
    if (is_model_value(key)) read.state.values[key] = value;
  }
  read.state.values.emplace("step", "0");
  put_lora_values(lora, read.state.values);
  read.state.files = base_files;
  take_template(directory, read.state);
  Hasher content;
  read.storage.reserve(2 * adapters.size());
  for (const LoraAdapter& adapter : adapters) {
    for (const char* half : kHalves) {
      const std::string name = adapter.module + half;
      const std::vector<std::int64_t>& shape = weights.at(name).shape;
      read.storage.push_back(read_f32(weights.at(name), name));
      content.update(read.storage.back());
      read.state.tensors.push_back({cat(kParam, name), DType::f32, shape,
                                    parallel::Slice::whole(shape), read.storage.back(),
                                    /*owner=*/true});
    }
  }
  read.run_id = formatted("import-{}", content.hex().substr(0, 16));
  return read;
}

}  // namespace trireme::checkpoint
