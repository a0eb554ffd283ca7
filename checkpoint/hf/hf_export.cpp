#include "checkpoint/hf/hf_export.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/convert.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/safetensors.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/folders.hpp"
#include "core/files/json.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kParam = "param/";

/// Names, shapes and dtypes of the parameters must be exactly those of the shape.
void check_parameters(const Checkpoint& checkpoint, const std::vector<HfTensor>& tensors) {
  std::string problems;
  std::map<std::string, bool> known;
  for (const HfTensor& tensor : tensors) {
    const std::string name = cat(kParam, tensor.name);
    known[name] = true;
    const auto found = checkpoint.manifest().tensors.find(name);
    if (found == checkpoint.manifest().tensors.end()) {
      problems += formatted("\n  missing: {}", name);
      continue;
    }
    const DType dtype = found->second.dtype;
    const bool is_float =
        dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
    if (found->second.shape != tensor.shape || !is_float)
      problems += formatted("\n  {}: wrong shape or dtype", name);
  }
  for (const auto& [name, tensor] : checkpoint.manifest().tensors) {
    if (name.starts_with(kParam) && !known.contains(name))
      problems += formatted("\n  extra: {}", name);
  }
  if (!problems.empty())
    fail(ErrorKind::data, "{}: parameters do not fit the model's shape:{}",
         checkpoint.path().string(), problems);
}

std::map<std::string, std::string> carried_files(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> files;
  for (const SavedFile& file : checkpoint.manifest().files)
    files[file.name] = checkpoint.file(file.name);
  return files;
}

std::string model_card(const Checkpoint& checkpoint, const ModelConfig& config, DType dtype) {
  return formatted(
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n# Model exported by Trireme\n\n| | |\n|---|---|\n| parameters | {} |\n| shape | {} layers, width {}, {} query and {} key-value heads of {}, MLP {} |\n| vocabulary | {} |\n| architecture | {}{} |\n| weights | {} |\n| run | {}, step {} |\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\nmodel = AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\")\ntokenizer = AutoTokenizer.from_pretrained(\"path/to/this/folder\")\n```\n",
      config.num_parameters(), config.num_layers, config.hidden_size, config.num_heads,
      config.num_kv_heads, config.head_dim, config.intermediate_size, config.vocab_size,
      config.qk_norm ? "Qwen3" : "Llama", config.tie_embeddings ? ", tied embedding" : "",
      dtype_name(dtype), checkpoint.manifest().run_id, checkpoint.step());
}

/// tokenizer.json is what the model was trained with: a class of one family's own, or none, would
/// have transformers build its tokenizer from the vocabulary alone, with that family's rules.
void name_tokenizer_class(std::map<std::string, std::string>& files, const std::string& where) {
  constexpr const char* kName = "tokenizer_config.json";
  constexpr const char* kFast = "PreTrainedTokenizerFast";
  if (!files.contains("tokenizer.json")) return;
  Json config =
      files.contains(kName) ? parse_json(files[kName], formatted("{}/{}", where, kName)) : Json{};
  const auto known = config.find("tokenizer_class");
  if (known != config.end() && (*known == kFast || *known == "TokenizersBackend")) return;
  config["tokenizer_class"] = kFast;
  files[kName] = config.dump(2) + "\n";
}

void write_small_files(const Checkpoint& checkpoint, const ModelConfig& config, DType dtype,
                       const fs::path& folder) {
  std::map<std::string, std::string> files = carried_files(checkpoint);
  const auto special_ids = special_token_ids(files);
  name_tokenizer_class(files, checkpoint.path().string());
  if (!files.contains("special_tokens_map.json")) {
    const std::string text = special_tokens_map_text(files);
    if (!text.empty()) files["special_tokens_map.json"] = text;
  }
  if (!files.contains(kGenerationConfigFile))
    files[kGenerationConfigFile] = hf_generation_text(special_ids);
  files.erase("config.toml");  // the run's, not the model's
  files["config.json"] = hf_config_text(config, dtype, special_ids);
  files["README.md"] = model_card(checkpoint, config, dtype);
  for (const auto& [name, content] : files) write_file_atomic(folder / name, content);
}

void write_weights(const Checkpoint& checkpoint, const std::vector<HfTensor>& tensors,
                   const ExportOptions& options, const fs::path& folder, Communicator& world) {
  std::vector<SafetensorsSource> sources;
  for (const HfTensor& tensor : tensors) {
    const std::string name = cat(kParam, tensor.name);
    const DType saved = checkpoint.manifest().tensors.at(name).dtype;
    sources.push_back({tensor.name, options.dtype, tensor.shape,
                       [&checkpoint, &options, name, saved](std::span<std::byte> bytes) {
                         convert_floats(saved, checkpoint.read_logical(name), options.dtype, bytes);
                       }});
  }
  write_safetensors_folder(folder, sources, world, options.max_file_bytes);
}

void check_absent(const fs::path& target) {
  std::error_code ignored;  // what cannot be looked at cannot be made either
  if (fs::exists(fs::symlink_status(target, ignored)))
    fail(ErrorKind::usage, "{} exists already: choose another --output or remove it",
         target.string());
}

/// An empty folder that is this process's alone: another export of the same name is refused, what
/// a killed one left is cleared.
Fd claim_temporary(const fs::path& temporary, const fs::path& target) {
  make_folders(temporary);
  std::optional<Fd> lock = lock_folder(temporary);
  if (!lock)
    fail(ErrorKind::usage, "another export is writing {}; wait for it, or choose another --output",
         target.string());
  check_absent(target);  // the other one may have ended between our look and our lock
  for (const fs::path& left : list_folder(temporary)) remove_tree(left);
  return std::move(*lock);
}

}  // namespace

void export_hf(const Checkpoint& checkpoint, const fs::path& folder, Communicator& world,
               const ExportOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16 && options.dtype != DType::f16) {
    fail(ErrorKind::usage, "export dtype {}, must be one of f32, bf16, f16",
         dtype_name(options.dtype));
  }
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();  // "out/" is out
  const fs::path temporary =
      target.parent_path() / formatted(".tmp-{}", target.filename().string());
  on_first_rank(world, [&] { check_absent(target); });
  const ModelConfig config =
      model_from_values(checkpoint.manifest().values, checkpoint.path().string());
  const std::vector<HfTensor> tensors = hf_tensors(config);
  check_parameters(checkpoint, tensors);
  std::optional<Fd> claim;  // of rank 0, for all
  on_first_rank(world, [&] { claim = claim_temporary(temporary, target); });
  const auto error = capture([&] {
    write_weights(checkpoint, tensors, options, temporary, world);
    on_first_rank(world, [&] {
      write_small_files(checkpoint, config, options.dtype, temporary);
      sync_folder(temporary);
      publish(temporary, target);
    });
  });
  if (!error) return;
  std::error_code ignored;
  if (world.rank() == 0) fs::remove_all(temporary, ignored);
  throw Error(error->kind(), error->what());
}

}  // namespace trireme
