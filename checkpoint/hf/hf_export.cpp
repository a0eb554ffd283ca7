#include "checkpoint/hf/hf_export.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/checked_weights.hpp"
#include "checkpoint/hf/convert.hpp"
#include "checkpoint/hf/export_files.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/lora.hpp"
#include "checkpoint/hf/safetensors.hpp"
#include "checkpoint/hf/whole_folder.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"

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
    if (found->second.shape != tensor.shape || !is_float(dtype))
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

/// Of a checkpoint that holds them all.
std::vector<SafetensorsSource> whole_weights(const Checkpoint& checkpoint,
                                             const std::vector<HfTensor>& tensors, DType dtype) {
  check_parameters(checkpoint, tensors);
  std::vector<SafetensorsSource> sources;
  for (const HfTensor& tensor : tensors) {
    const std::string name = cat(kParam, tensor.name);
    const DType saved = checkpoint.manifest().tensors.at(name).dtype;
    sources.push_back({tensor.name, dtype, tensor.shape,
                       [&checkpoint, dtype, name, saved](std::span<std::byte> bytes) {
                         convert_floats(saved, checkpoint.read_logical(name), dtype, bytes);
                       }});
  }
  return sources;
}

/// Of adapters, added to the weights of their base.
std::vector<SafetensorsSource> merged_weights(const Checkpoint& checkpoint, const Checkpoint& base,
                                              const ModelConfig& config, DType dtype) {
  std::vector<SafetensorsSource> sources = whole_weights(base, hf_tensors(config), dtype);
  const LoraConfig lora = lora_of(checkpoint);
  const std::vector<LoraAdapter> adapters = lora_adapters(lora, config);
  check_adapters(checkpoint, adapters, lora.rank);
  for (const LoraAdapter& adapter : adapters) {
    const auto source = std::find_if(
        sources.begin(), sources.end(),
        [&](const SafetensorsSource& one) { return one.name == cat(adapter.module, ".weight"); });
    source->fill = [&checkpoint, &base, adapter, lora, dtype](std::span<std::byte> bytes) {
      const std::vector<double> merged = merged_weight(checkpoint, base, adapter, lora);
      convert_floats(DType::f64, std::as_bytes(std::span(merged)), dtype, bytes);
    };
  }
  return sources;
}

}  // namespace

void export_hf(const Checkpoint& checkpoint, const fs::path& folder, Communicator& world,
               const ExportOptions& options) {
  if (options.dtype != DType::f32 && options.dtype != DType::bf16 && options.dtype != DType::f16) {
    fail(ErrorKind::usage, "export dtype {}, must be one of f32, bf16, f16",
         dtype_name(options.dtype));
  }
  const ModelConfig config =
      model_from_values(checkpoint.manifest().values, checkpoint.path().string());
  TRIREME_ASSERT(holds_adapters(checkpoint) == (options.base != nullptr));
  const std::vector<SafetensorsSource> sources =
      options.base != nullptr ? merged_weights(checkpoint, *options.base, config, options.dtype)
                              : whole_weights(checkpoint, hf_tensors(config), options.dtype);
  write_whole_folder(folder, world, [&](const fs::path& temporary) {
    write_checked_folder(temporary, sources, world, options.max_file_bytes);
    on_first_rank(world, [&] {
      for (const auto& [name, content] : export_files(checkpoint, config, options.dtype))
        write_file_atomic(temporary / name, content);
      check_exported_config(temporary, config);
    });
  });
}

}  // namespace trireme
