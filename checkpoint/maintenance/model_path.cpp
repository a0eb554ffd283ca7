#include "checkpoint/maintenance/model_path.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/maintenance/reshard.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "checkpoint/save/save.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/hash/sha256.hpp"
#include "core/log.hpp"
#include "text/chat/jinja_chat.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kParam = "param/";

/// Opens the newest checkpoint with a readable manifest.
Checkpoint newest_readable(const fs::path& place) {
  const CheckpointLocation found = locate_checkpoints(place);
  if (found.is_step) return Checkpoint::open(found.path);
  std::optional<Checkpoint> newest;
  std::optional<Error> problem;
  for (const std::int64_t step : list_steps(found.path)) {
    const auto error =
        comm::capture([&] { newest = Checkpoint::open(found.path / step_directory_name(step)); });
    if (newest) return *std::move(newest);
    if (!problem) problem = error;
  }
  throw problem ? *problem
                : Error(ErrorKind::data, formatted("{} holds no checkpoint", place.string()));
}

/// Writes the base weights with the adapters added as step 0 of `directory`. Called by rank 0 only.
void write_merged(const Checkpoint& adapters, const Checkpoint& base, const fs::path& directory) {
  const std::string where = adapters.path().string();
  const model::ModelConfig model = model_from_values(adapters.manifest().values, where);
  const model::LoraConfig lora = lora_of(adapters);
  const std::vector<LoraAdapter> all = lora_adapters(lora, model);
  check_adapters(adapters, all, lora.rank);
  StateDict state;
  for (const auto& [key, value] : adapters.manifest().values) {
    if (is_model_value(key)) state.values[key] = value;
  }
  state.values.emplace("step", "0");
  for (const SavedFile& file : adapters.manifest().files) {
    if (file.name != "config.toml") state.files[file.name] = adapters.file(file.name);
  }
  std::vector<std::vector<std::byte>> storage;
  storage.reserve(base.manifest().tensors.size());
  for (const auto& [name, tensor] : base.manifest().tensors) {
    if (!name.starts_with(kParam)) continue;
    const auto adapter = std::find_if(all.begin(), all.end(), [&](const LoraAdapter& one) {
      return name == cat(kParam, one.module, ".weight");
    });
    const DType dtype = tensor.dtype == DType::f64 ? DType::f64 : DType::f32;
    std::vector<std::byte>& bytes =
        storage.emplace_back(static_cast<std::size_t>(tensor.count()) * size_of(dtype));
    if (adapter == all.end()) {
      convert_floats(tensor.dtype, base.read_logical(name), dtype, bytes);
    } else {
      const std::vector<double> merged = merged_weight(adapters, base, *adapter, lora);
      convert_floats(DType::f64, std::as_bytes(std::span(merged)), dtype, bytes);
    }
    state.tensors.push_back(
        {name, dtype, tensor.shape, parallel::Slice::whole(tensor.shape), bytes, /*owner=*/true});
  }
  comm::SelfCommunicator alone;
  save_checkpoint(directory, 0, state, alone, {.run_id = adapters.manifest().run_id});
}

/// Calls `make` on rank 0, which writes step 0 of `directory`, and opens the result on all ranks.
WholeModel made_in(const fs::path& directory, comm::Communicator& world,
                   const std::function<void()>& make) {
  comm::on_first_rank(world, [&] {
    remove_tree(directory);  // remove what a start that was killed has left
    make();
  });
  return {Checkpoint::open(directory / step_directory_name(0), world), true};
}

std::string hash_hf(const fs::path& directory) {
  HfModel hf = open_hf_model(directory);
  const std::vector<NamedShape> tensors = checked_tensors(hf.model, hf.weights);
  std::map<std::string, std::vector<std::int64_t>> by_name;  // sorted like a manifest
  for (const NamedShape& tensor : tensors) by_name[cat(kParam, tensor.name)] = tensor.shape;
  Sha256 hash;
  for (const auto& [name, shape] : by_name) {
    Sha256 one;
    one.update(tensor_head(name, DType::f32, shape));
    const std::string parameter = name.substr(kParam.size());
    one.update(read_f32(hf.weights.at(parameter), parameter));
    hash.update(one.hex() + "\n");
  }
  return hash.hex();
}

}  // namespace

ModelDescription read_model_description(const fs::path& place) {
  if (is_hf_directory(place)) {
    HfModel hf = open_hf_model(place);
    checked_tensors(hf.model, hf.weights);
    ModelDescription facts{place, std::move(hf.model.values), std::move(hf.model.files)};
    put_model_values(hf.model.config, facts.values);
    const std::string chat = template_of_files(facts.files);
    if (!chat.empty()) {
      facts.values[kImportedTemplateValue] = chat;
      facts.values[kImportedJinjaValue] = text::custom_template_name(jinja_of(facts.files));
    }
    facts.values.emplace("step", "0");
    return facts;
  }
  const Checkpoint newest = newest_readable(place);
  ModelDescription facts{newest.path(), newest.manifest().values, {}};
  for (const SavedFile& file : newest.manifest().files) {
    if (file.name != "config.toml") facts.files[file.name] = newest.file(file.name);
  }
  return facts;
}

WholeModel open_whole_model(const fs::path& place, const fs::path& directory,
                            comm::Communicator& world, bool allow_older) {
  if (is_hf_directory(place, world)) {
    return made_in(directory, world, [&] {
      HfModel hf = open_hf_model(place);
      write_imported(std::move(hf.model), std::move(hf.weights), directory);
    });
  }
  Checkpoint found = open_newest_good(place, world, allow_older);
  if (!holds_adapters(found)) return {std::move(found), false};
  const Checkpoint base = open_newest_good(base_checkpoint_path(found), world);
  return made_in(directory, world, [&] { write_merged(found, base, directory); });
}

Checkpoint publish_model(const fs::path& place, const fs::path& directory,
                         comm::Communicator& world, bool allow_older) {
  WholeModel model = open_whole_model(place, directory, world, allow_older);
  if (model.made) return std::move(model.checkpoint);
  return Checkpoint::open(publish_weights(model.checkpoint, directory, world), world);
}

std::string hash_model(const fs::path& place, comm::Communicator& world, bool allow_older) {
  if (is_hf_directory(place, world))
    return comm::text_of_first_rank(world, [&] { return hash_hf(place); });
  return hash_tensors(open_newest_good(place, world, allow_older), world, kParam);
}

}  // namespace trireme::checkpoint
