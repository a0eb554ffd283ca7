#include "checkpoint/gguf/gguf_export.hpp"

#include <map>

#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/exchange/whole_directory.hpp"
#include "checkpoint/exchange/whole_weights.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/format/state.hpp"
#include "checkpoint/gguf/gguf_architecture.hpp"
#include "checkpoint/gguf/gguf_keys.hpp"
#include "checkpoint/gguf/gguf_tensors.hpp"
#include "checkpoint/gguf/gguf_tokenizer.hpp"
#include "checkpoint/hf/export_files.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

/// Returns the value of general.file_type: the type of most tensors.
std::uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

GgufValues metadata(const Checkpoint& checkpoint, const model::ModelConfig& config,
                    const GgufArchitecture& architecture, GgufType type) {
  const std::string where = checkpoint.path().string();
  GgufValues values;
  values.text("general.architecture", architecture.name);
  values.text("general.name",
              formatted("Trireme {}, step {}", checkpoint.manifest().run_id, checkpoint.step()));
  values.number("general.file_type", file_type(type));
  values.number("general.quantization_version", 2);
  put_gguf_shape(config, architecture, values);
  std::map<std::string, std::string> files = exported_tokenizer(checkpoint);
  for (const SavedFile& file : checkpoint.manifest().files)
    if (file.name == kGenerationConfigFile) files[file.name] = checkpoint.file(file.name);
  put_gguf_tokenizer(files, config.vocab_size, where, values);
  if (const auto end = trained_turn_end(checkpoint.manifest().values, files, where))
    values.number("tokenizer.ggml.eot_token_id", *end);
  return values;
}

}  // namespace

void export_gguf(const Checkpoint& checkpoint, const Checkpoint* base,
                 const std::filesystem::path& directory, comm::Communicator& world, GgufType type) {
  const std::string where = checkpoint.path().string();
  const std::map<std::string, std::string>& stored = checkpoint.manifest().values;
  const model::ModelConfig config = model_from_values(stored, where);
  const auto family = stored.find(kHfFamilyValue);
  const GgufArchitecture& architecture =
      gguf_architecture(config, family == stored.end() ? "" : family->second, where);
  if (world.rank() == 0)
    for (const std::string& note : gguf_notes(config, architecture)) log::warn(note);
  const GgufValues values = metadata(checkpoint, config, architecture, type);
  const std::vector<GgufTensor> tensors =
      gguf_tensors(config, architecture, type,
                   [&](DType dtype) { return whole_weights(checkpoint, base, config, dtype); });
  const double weight_bytes =
      static_cast<double>(gguf_bytes(type, kBlockElements)) / kBlockElements;
  Progress progress("export", config.num_parameters_wide() * weight_bytes, Progress::Unit::bytes);
  write_whole_directory(directory, world, [&](const std::filesystem::path& temporary) {
    comm::on_first_rank(world, [&] {
      write_gguf(temporary / "model.gguf", values, tensors,
                 [&](std::uint64_t bytes) { progress.add(static_cast<double>(bytes)); });
    });
  });
}

}  // namespace trireme::checkpoint
