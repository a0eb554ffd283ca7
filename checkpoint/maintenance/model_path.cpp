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

/// Returns the base weights with the adapters added, computed when they are written. The ranks
/// share the tensors. Both checkpoints must outlive the result.
StateDict merged_state(const Checkpoint& adapters, const Checkpoint& base,
                       const comm::Communicator& world) {
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
  for (const auto& [name, tensor] : base.manifest().tensors) {
    if (!name.starts_with(kParam)) continue;
    const auto adapter = std::find_if(all.begin(), all.end(), [&](const LoraAdapter& one) {
      return name == cat(kParam, one.module, ".weight");
    });
    const DType dtype = tensor.dtype == DType::f64 ? DType::f64 : DType::f32;
    std::function<void(std::span<std::byte>)> produce;
    if (adapter == all.end()) {
      produce = [&base, name, from = tensor.dtype, dtype](std::span<std::byte> bytes) {
        convert_floats(from, base.read_logical(name), dtype, bytes);
      };
    } else {
      produce = [&adapters, &base, adapter = *adapter, lora, dtype](std::span<std::byte> bytes) {
        const std::vector<double> merged = merged_weight(adapters, base, adapter, lora);
        convert_floats(DType::f64, std::as_bytes(std::span(merged)), dtype, bytes);
      };
    }
    state.tensors.push_back({.name = name,
                             .dtype = dtype,
                             .shape = tensor.shape,
                             .slice = parallel::Slice::whole(tensor.shape),
                             .produce = std::move(produce)});
  }
  state.tensors = share_of_rank(std::move(state.tensors), world);
  return state;
}

/// Calls `make` on all ranks, which writes step 0 of `directory`, and opens the result.
WholeModel made_in(const fs::path& directory, comm::Communicator& world,
                   const std::function<void()>& make) {
  // Remove what a start that was killed has left.
  comm::on_first_rank(world, [&] { remove_tree(directory); });
  make();
  return {Checkpoint::open(directory / step_directory_name(0), world), true};
}

/// Opens a Hugging Face directory on all ranks, of which rank 0 logs what is found. Collective.
HfModel open_hf_on_all(const fs::path& directory, comm::Communicator& world) {
  HfModel hf;
  comm::on_first_rank_then_others(world, [&] { hf = open_hf_model(directory); });
  hf.model.logs = world.rank() == 0;
  return hf;
}

std::string hash_hf(const fs::path& directory, comm::Communicator& world) {
  HfModel hf = open_hf_on_all(directory, world);
  std::vector<NamedShape> tensors;
  comm::on_first_rank_then_others(world, [&] { tensors = checked_tensors(hf.model, hf.weights); });
  // hash_tensors takes the tensors in the order of their names, too.
  std::ranges::sort(tensors, {}, &NamedShape::name);
  const std::vector<std::string> hashes =
      comm::distribute_work(world, num_elements(tensors), [&](std::size_t i) {
        const auto& [name, shape] = tensors[i];
        Sha256 one;
        one.update(tensor_head(cat(kParam, name), DType::f32, shape));
        one.update(read_f32(hf.weights.at(name), name));
        return one.hex();
      });
  Sha256 hash;
  for (const std::string& one : hashes) hash.update(one + "\n");
  return hash.hex();
}

}  // namespace

ModelDescription read_model_description(const fs::path& place) {
  if (is_hf_directory(place)) {
    HfModel hf = open_hf_model(place);
    checked_tensors(hf.model, hf.weights);
    ModelDescription facts{place, std::move(hf.model.values), std::move(hf.model.files)};
    put_model_values(hf.model.config, facts.values);
    put_imported_template(facts.files, facts.values);
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
      HfModel hf = open_hf_on_all(place, world);
      write_imported(std::move(hf.model), std::move(hf.weights), directory, world);
    });
  }
  Checkpoint found = open_newest_good(place, world, allow_older);
  if (!holds_adapters(found)) return {std::move(found), false};
  const Checkpoint base = open_newest_good(base_checkpoint_path(found), world);
  return made_in(directory, world, [&] {
    StateDict state;
    comm::on_first_rank_then_others(world, [&] { state = merged_state(found, base, world); });
    save_checkpoint(directory, 0, state, world, {.run_id = found.manifest().run_id});
  });
}

Checkpoint publish_model(const fs::path& place, const fs::path& directory,
                         comm::Communicator& world, bool allow_older) {
  WholeModel model = open_whole_model(place, directory, world, allow_older);
  if (model.made) return std::move(model.checkpoint);
  return Checkpoint::open(publish_weights(model.checkpoint, directory, world), world);
}

std::string hash_model(const fs::path& place, comm::Communicator& world, bool allow_older) {
  if (is_hf_directory(place, world)) return hash_hf(place, world);
  return hash_tensors(open_newest_good(place, world, allow_older), world, kParam);
}

}  // namespace trireme::checkpoint
