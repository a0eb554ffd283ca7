#include "serve/load_model.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/lora.hpp"
#include "checkpoint/hf/special_tokens.hpp"
#include "checkpoint/hf/tokenizer_size.hpp"
#include "checkpoint/load/load.hpp"
#include "checkpoint/upkeep/newest.hpp"
#include "comm/factory.hpp"
#include "core/error.hpp"
#include "parallel/torch_bridge.hpp"

namespace trireme {
namespace {

Tokenizer tokenizer_of(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    if (checkpoint.has_file(name)) files[name] = checkpoint.file(name);
  }
  return Tokenizer::from_files(files, checkpoint.path().string());
}

/// Ids that the embedding lacks, as in configurations of small test models, are never drawn.
std::vector<std::uint32_t> end_tokens_of(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                                         std::int64_t vocab_size) {
  std::vector<std::uint32_t> ids;
  if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
  if (!checkpoint.has_file(kGenerationConfigFile)) return ids;
  const std::string where = (checkpoint.path() / kGenerationConfigFile).string();
  const SpecialTokenIds listed =
      listed_token_ids(parse_json(checkpoint.file(kGenerationConfigFile), where), where);
  const auto found = listed.find("eos");
  if (found == listed.end()) return ids;
  for (const std::int64_t id : found->second) {
    if (id < vocab_size) ids.push_back(static_cast<std::uint32_t>(id));
  }
  return ids;
}

/// Copies each parameter from the checkpoint, converted from its saved dtype; what adapters lack from
/// their base.
void load_weights(const Checkpoint& newest, const std::optional<Checkpoint>& base,
                  ParamRegistry& registry) {
  for (ParamId id = 0; id < registry.size(); ++id) {
    const std::string name = formatted("param/{}", registry.spec(id).name);
    const Checkpoint& checkpoint =
        base && !newest.manifest().tensors.contains(name) ? *base : newest;
    const auto found = checkpoint.manifest().tensors.find(name);
    if (found == checkpoint.manifest().tensors.end() ||
        found->second.shape != registry.spec(id).shape) {
      fail(ErrorKind::data, "{}: tensor {} is missing or of another shape",
           checkpoint.path().string(), name);
    }
    std::vector<std::byte> bytes = checkpoint.read_logical(name);
    const at::Tensor saved =
        at::from_blob(bytes.data(), found->second.shape, to_scalar_type(found->second.dtype));
    registry.main(id).copy_(saved);
  }
  registry.refresh_weights();
}

}  // namespace

std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& place, ParamDTypes dtypes,
                                        at::Device device, bool allow_older) {
  const Checkpoint checkpoint = open_newest_good(place, allow_older);
  const ModelConfig config =
      model_from_values(checkpoint.manifest().values, checkpoint.path().string());
  std::unique_ptr<Communicator> self = make_world("self", {});
  auto mesh = std::make_unique<Mesh>(*self, ParallelConfig{});
  auto loaded = std::unique_ptr<LoadedModel>(new LoadedModel{std::move(self),
                                                             std::move(mesh),
                                                             {},
                                                             nullptr,
                                                             tokenizer_of(checkpoint),
                                                             {},
                                                             checkpoint.path()});
  loaded->end_tokens = end_tokens_of(checkpoint, loaded->tokenizer, config.vocab_size);
  check_tokenizer_fits(loaded->tokenizer.vocab_size(), config, checkpoint.path().string());
  loaded->registry.freeze();  // weights alone: no gradients
  TransformerOptions model_options;
  std::optional<Checkpoint> base;
  if (holds_adapters(checkpoint)) {
    model_options.lora = lora_of(checkpoint);
    base = open_newest_good(base_place(checkpoint));
  }
  loaded->transformer = std::make_unique<Transformer>(loaded->registry, config,
                                                      ModelPart::whole(config), model_options);
  loaded->registry.allocate(*loaded->mesh, dtypes, device);
  loaded->transformer->prepare();
  load_weights(checkpoint, base, loaded->registry);
  return loaded;
}

}  // namespace trireme
