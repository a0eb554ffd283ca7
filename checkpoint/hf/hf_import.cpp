#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/format/state.hpp"
#include "checkpoint/hf/family_tensors.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/log.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Makes sure that generation_config.json lists the tokens that end a text. If the file is missing,
/// makes it from config.json, because transformers also falls back to config.json.
void add_generation_config(const Json& config, const fs::path& model,
                           std::map<std::string, std::string>& files) {
  const SpecialTokenIds ids = listed_token_ids(config, (model / "config.json").string());
  if (const auto found = files.find(kGenerationConfigFile); found != files.end()) {
    const std::string where = (model / kGenerationConfigFile).string();
    (void)listed_token_ids(parse_json(found->second, where), where);
  } else if (ids.contains("eos")) {
    files[kGenerationConfigFile] = hf_generation_text(ids);
  }
}

}  // namespace

bool is_hf_directory(const fs::path& directory) {
  return fs::exists(directory / "config.json");
}

bool is_hf_directory(const fs::path& directory, comm::Communicator& world) {
  return comm::text_of_first_rank(world, [&] { return is_hf_directory(directory) ? "1" : ""; }) ==
         "1";
}

HfModel open_hf_model(const fs::path& directory) {
  const fs::path config_path = directory / "config.json";
  const Json hf_config = read_json(config_path);
  ImportedModel imported{model_from_hf(hf_config, config_path.string()),
                         {},
                         tokenizer_files_of(directory),
                         directory.string()};
  imported.values[kHfFamilyValue] = hf_config.at("model_type").get<std::string>();
  add_generation_config(hf_config, directory, imported.files);
  const Family& family = *find_family(imported.values[kHfFamilyValue]);
  WeightSource weights = from_family(
      family, imported.config, weights_of(open_safetensors_directory(directory)), imported.where);
  return {std::move(imported), std::move(weights)};
}

fs::path import_hf(const fs::path& model, const fs::path& directory, bool require_tokenizer,
                   const VocabChange& change) {
  HfModel opened = open_hf_model(model);
  const fs::path config_path = model / "config.json";
  const auto unknown = hf_unknown_keys(read_json(config_path), config_path.string());
  if (!unknown.empty())
    log::warn(
        formatted("{} has keys that Trireme does not know and ignores: {}. If one of them "
                  "changes the computation, the imported model computes other logits.",
                  config_path.string(), joined(unknown, ", ")));
  if (const auto& config = opened.model.config; config.rope_scaling.starts_with("longrope"))
    log::info(formatted(
        "{}: model.max_seq_len is {}, the original length, so that short_factor applies; train with a larger value to use long_factor",
        model.string(), config.max_seq_len));
  opened.model.require_tokenizer = require_tokenizer;
  change_vocab(change, opened.model, opened.weights);
  return save_imported(std::move(opened.model), opened.weights, directory);
}

}  // namespace trireme::checkpoint
