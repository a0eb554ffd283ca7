#include "generate/load/load_model.hpp"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/format/state.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "checkpoint/tokenizer/tokenizer_check.hpp"
#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/process/max_threads.hpp"
#include "device/device.hpp"
#include "device/torch_bridge.hpp"
#include "generate/load/load_on_ranks.hpp"

namespace trireme::generate {
namespace {

/// The source of a model: a checkpoint or a Hugging Face directory.
struct ModelSource {
  std::filesystem::path place;
  model::ModelConfig config;
  model::LoraConfig lora;
  std::map<std::string, std::string> files;  // tokenizer files
  std::string chat;                          // name of the chat format; "" if unknown
  std::string taught;                        // result of template_of, also for imported models
  /// Reads a parameter, converts it to the dtype of `weight` and stores it there.
  std::function<void(const std::string& name, const at::Tensor& weight)> read;
};

std::map<std::string, std::string> carried_files(const checkpoint::Checkpoint& checkpoint) {
  std::map<std::string, std::string> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           checkpoint::kGenerationConfigFile}) {
    if (checkpoint.has_file(name)) files[name] = checkpoint.file(name);
  }
  return files;
}

/// Reads a parameter in its saved dtype, from the base if an adapter checkpoint lacks it.
void read_parameter(const checkpoint::Checkpoint& newest,
                    const std::optional<checkpoint::Checkpoint>& base, const std::string& parameter,
                    const at::Tensor& weight) {
  const std::string name = formatted("param/{}", parameter);
  const checkpoint::Checkpoint& checkpoint =
      base && !newest.manifest().tensors.contains(name) ? *base : newest;
  const auto found = checkpoint.manifest().tensors.find(name);
  if (found == checkpoint.manifest().tensors.end() || weight.sizes() != found->second.shape) {
    fail(ErrorKind::data, "{}: tensor {} is missing or has another shape",
         checkpoint.path().string(), name);
  }
  std::vector<std::byte> bytes = checkpoint.read_logical(name);
  weight.copy_(at::from_blob(bytes.data(), found->second.shape,
                             device::to_scalar_type(found->second.dtype)));
}

ModelSource source_of(const checkpoint::Checkpoint& checkpoint) {
  ModelSource source;
  source.place = checkpoint.path();
  source.config =
      checkpoint::model_from_values(checkpoint.manifest().values, source.place.string());
  source.files = carried_files(checkpoint);
  const auto& values = checkpoint.manifest().values;
  if (const auto chat = values.find(checkpoint::kChatTemplateValue); chat != values.end())
    source.chat = chat->second;
  source.taught = checkpoint::template_of(values);
  std::optional<checkpoint::Checkpoint> base;
  if (checkpoint::holds_adapters(checkpoint)) {
    source.lora = checkpoint::lora_of(checkpoint);
    base = checkpoint::open_newest_good(checkpoint::base_checkpoint_path(checkpoint));
  }
  source.read = [checkpoint, base](const std::string& name, const at::Tensor& weight) {
    read_parameter(checkpoint, base, name, weight);
  };
  return source;
}

ModelSource source_of_hf(const std::filesystem::path& folder) {
  checkpoint::HfModel hf = checkpoint::open_hf_model(folder);
  checkpoint::checked_tensors(hf.model, hf.weights);
  ModelSource source;
  source.place = folder;
  source.config = hf.model.config;
  source.files = hf.model.files;
  source.taught = checkpoint::template_of_files(source.files);
  source.read = [weights = hf.weights](const std::string& name, const at::Tensor& weight) {
    std::vector<std::byte> bytes = checkpoint::read_f32(weights.at(name), name);
    weight.copy_(at::from_blob(bytes.data(), weight.sizes(), at::kFloat));
  };
  return source;
}

ModelSource open_source(const std::filesystem::path& place, bool allow_older, bool ema,
                        const std::string& head) {
  if (checkpoint::is_hf_directory(place)) {
    if (ema)
      fail(ErrorKind::usage, "--ema: {} is a Hugging Face directory, which has no EMA",
           place.string());
    return source_of_hf(place);
  }
  const checkpoint::Checkpoint saved = checkpoint::open_newest_good(place, allow_older);
  checkpoint::check_head(saved.manifest().values, saved.path().string(), head);
  return source_of(ema ? saved.with_ema_weights() : saved);
}

/// Returns the end tokens. Ids outside the embedding (as in small test models) and ids without a
/// token are skipped, because they are never sampled.
std::vector<std::uint32_t> end_tokens_of(const ModelSource& source,
                                         const text::Tokenizer& tokenizer) {
  std::vector<std::uint32_t> ids;
  if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
  const auto file = source.files.find(checkpoint::kGenerationConfigFile);
  if (file == source.files.end()) return ids;
  const std::string where = (source.place / checkpoint::kGenerationConfigFile).string();
  const checkpoint::SpecialTokenIds listed =
      checkpoint::listed_token_ids(parse_json(file->second, where), where);
  const auto found = listed.find("eos");
  if (found == listed.end()) return ids;
  for (const std::int64_t id : found->second) {
    const bool is_used = id < source.config.vocab_size && id < tokenizer.vocab_size();
    if (is_used) ids.push_back(static_cast<std::uint32_t>(id));
  }
  return ids;
}

/// Returns the model's tokenizer. If the tokenizer cannot be read, logs a warning and returns a
/// tokenizer for token ids only.
text::Tokenizer tokenizer_of(const ModelSource& source) {
  const std::string problem = checkpoint::tokenizer_problem(source.files, source.place.string());
  if (problem.empty()) return text::Tokenizer::from_files(source.files, source.place.string());
  log::warn(formatted("{}\nThe model takes token ids only, no text", problem));
  return text::Tokenizer::ids_only(
      source.files, static_cast<std::uint32_t>(source.config.vocab_size),
      formatted("{}\nThis model takes token ids only, no text", problem));
}

/// Returns the format made from the Jinja template of the tokenizer; null if there is no template,
/// or it is not supported, which is logged.
text::ChatTemplatePtr jinja_format_of(const ModelSource& source) {
  const std::string jinja = checkpoint::jinja_of(source.files);
  if (jinja.empty()) return nullptr;
  text::ChatTemplatePtr format;
  const std::string where = formatted("{}: the chat template", source.place.string());
  if (const auto error = comm::capture([&] { format = text::jinja_chat_template(jinja, where); }))
    log::warn(error->what());
  return format;
}

text::ChatTemplatePtr chat_of(const ModelSource& source) {
  if (!source.chat.empty() && !checkpoint::is_custom_template(source.chat))
    return text::shared_chat_template(source.chat);
  const std::string jinja = checkpoint::jinja_of(source.files);
  // A run of adapters or an import can have other tokenizer files than the run that trained.
  if (!source.chat.empty() && !jinja.empty() && text::custom_template_name(jinja) != source.chat)
    log::warn(formatted(
        "{} was trained with the chat template {}, but its tokenizer has {}, which is used here",
        source.place.string(), source.chat, text::custom_template_name(jinja)));
  const text::ChatTemplate* named =
      source.chat.empty() ? text::nearest_chat_template(jinja) : nullptr;
  return named != nullptr ? text::shared_chat_template(named->name) : jinja_format_of(source);
}

/// Throws Error(usage) unless all ranks get the same number of heads.
void check_heads(const model::ModelConfig& config, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const bool is_even = config.num_heads % ranks == 0 &&
                         model::local_heads(config, ranks, rank).key_of_query.empty();
    if (is_even) continue;
    fail(
        ErrorKind::usage,
        "--parallel.tp {} cannot divide {} attention heads and {} key heads evenly. Give a divisor "
        "of the number of key heads.",
        ranks, config.num_heads, config.num_kv_heads);
  }
}

/// Adds the name and the values of a parameter to the hash of the weights.
void hash_weight(Hasher& hasher, const std::string& name, const at::Tensor& weight) {
  const at::Tensor values = weight.to(at::kCPU).contiguous();
  hasher.update(name);
  hasher.update(std::span(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()));
}

/// Reads all parameters. If several ranks hold the model, each rank reads a whole parameter and
/// keeps its part. Then returns the hash of the whole weights, otherwise "".
std::string read_parameters(const ModelSource& source, LoadedModel& loaded) {
  const bool is_split = loaded.mesh->size(parallel::Axis::tp) > 1;
  Hasher hasher;
  for (parallel::ParamId id = 0; id < loaded.registry.size(); ++id) {
    const parallel::ParamSpec& spec = loaded.registry.spec(id);
    const at::Tensor weight = loaded.registry.main(id);
    if (!is_split) {
      source.read(spec.name, weight);
      continue;
    }
    const at::Tensor whole = at::empty(spec.shape, weight.options());
    source.read(spec.name, whole);
    hash_weight(hasher, spec.name, whole);
    at::Tensor part = whole;
    const parallel::Slice& slice = loaded.registry.layout().param(id).slice;
    for (std::size_t dim = 0; dim < slice.offset.size(); ++dim)
      part = part.narrow(static_cast<std::int64_t>(dim), slice.offset[dim], slice.extent[dim]);
    weight.copy_(part);
  }
  return is_split ? hasher.hex() : "";
}

/// Loads a model on the ranks of `mesh`. `self` is null, or the world of `mesh`.
ModelPart load_part(const ModelSource& source, std::unique_ptr<comm::Communicator> self,
                    std::unique_ptr<parallel::Mesh> mesh, device::ParamDTypes dtypes,
                    at::Device device) {
  auto loaded = std::unique_ptr<LoadedModel>(new LoadedModel{std::move(self),
                                                             std::move(mesh),
                                                             {},
                                                             nullptr,
                                                             tokenizer_of(source),
                                                             {},
                                                             source.place,
                                                             chat_of(source),
                                                             source.taught});
  loaded->end_tokens = end_tokens_of(source, loaded->tokenizer);
  checkpoint::check_tokenizer_fits(loaded->tokenizer.vocab_size(), source.config,
                                   source.place.string());
  loaded->registry.freeze();  // inference: no gradients
  model::TransformerOptions model_options;
  model_options.lora = source.lora;
  model_options.tensor = {loaded->mesh->group(parallel::Axis::tp), /*sequence_parallel=*/false};
  loaded->transformer =
      std::make_unique<model::Transformer>(loaded->registry, source.config, model_options);
  loaded->registry.allocate(*loaded->mesh, dtypes, device);
  loaded->transformer->prepare();
  std::string hash = read_parameters(source, *loaded);
  loaded->registry.refresh_weights();
  return {std::move(loaded), std::move(hash)};
}

/// Sets the chat format that the options name.
void choose_chat(LoadedModel& model, const ModelOptions& options,
                 const text::ChatTemplatePtr& format) {
  if (format != nullptr) model.chat = format;
  if (options.chat_template != text::kTokenizerTemplate) return;
  const std::string jinja = checkpoint::jinja_of(model.tokenizer.files());
  if (jinja.empty())
    fail(ErrorKind::usage, "--chat-template tokenizer: the tokenizer of {} has no chat template",
         options.checkpoint);
  model.chat = text::jinja_chat_template(
      jinja, formatted("{}: the chat template", model.checkpoint.string()));
}

void set_threads(const ModelOptions& options, int local_size) {
  if (options.threads < 0 || options.threads > kMaxThreads)
    fail(ErrorKind::usage, "--threads {}, must be in [0, {}]", options.threads, kMaxThreads);
  device::set_cpu_threads(options.threads, local_size);
}

/// Throws Error(usage) if --weights is invalid or does not fit the other options.
void check_weights(const ModelOptions& options, at::Device device) {
  if (options.weights == "precision") return;
  if (options.weights != "int8")
    fail(ErrorKind::usage, "--weights is {}. It must be precision or int8.", options.weights);
  if (!device.is_cpu())
    fail(ErrorKind::usage, "--weights int8 runs on a CPU only. Give --device cpu.");
  if (options.precision != "fp32" && options.precision != "bf16")
    fail(ErrorKind::usage,
         "--weights int8 does not support --precision {}. Give --precision fp32 or bf16.",
         options.precision);
}

/// Returns the format that the options name; null for the model's own.
text::ChatTemplatePtr chosen_format(const ModelOptions& options) {
  constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
  const bool is_named =
      !options.chat_template.empty() && options.chat_template != text::kTokenizerTemplate;
  if (!options.chat_template.empty() && !options.chat_template_file.empty())
    fail(ErrorKind::usage, "--chat-template {} and --chat-template-file {} exclude each other",
         options.chat_template, options.chat_template_file);
  if (is_named) return text::shared_chat_template(options.chat_template);
  if (options.chat_template_file.empty()) return nullptr;
  return text::jinja_chat_template(read_file(options.chat_template_file, kMaxTemplateBytes),
                                   options.chat_template_file);
}

}  // namespace

text::ChatWriter chat_writer_of(const LoadedModel& model) {
  if (model.tokenizer.is_ids_only()) {
    fail(
        ErrorKind::data,
        "{} has no tokenizer that can be read, so it cannot answer chats. Give token ids: --prompts FILE with lines {{\"ids\"}}",
        model.checkpoint.string());
  }
  if (model.chat == nullptr && checkpoint::is_custom_template(model.chat_template_name)) {
    fail(
        ErrorKind::usage,
        "{} has the chat template {}, and its tokenizer files hold no Jinja text of this template that can be read. Give the text with --chat-template-file FILE, or choose one of {} with --chat-template",
        model.checkpoint.string(), model.chat_template_name, text::chat_template_names());
  }
  if (model.chat == nullptr) {
    fail(
        ErrorKind::usage,
        "{} has no chat format (chat.template), and its tokenizer has no chat template that can be read. Choose one of {} with --chat-template, or give --chat-template-file FILE",
        model.checkpoint.string(), text::chat_template_names());
  }
  return text::ChatWriter(model.chat, model.tokenizer);
}

std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& place,
                                        device::ParamDTypes dtypes, at::Device device,
                                        bool allow_older, bool ema, const std::string& head) {
  const ModelSource source = open_source(place, allow_older, ema, head);
  std::unique_ptr<comm::Communicator> self = comm::make_world("self", {});
  auto mesh = std::make_unique<parallel::Mesh>(*self, parallel::ParallelConfig{});
  return load_part(source, std::move(self), std::move(mesh), dtypes, device).model;
}

void check_chat_template(const ModelOptions& options) {
  (void)chosen_format(options);
}

std::unique_ptr<LoadedModel> load_model(const ModelOptions& options, int local_rank,
                                        int local_size) {
  const text::ChatTemplatePtr format = chosen_format(options);
  set_threads(options, local_size);
  const device::ParamDTypes dtypes = device::precision_dtypes(options.precision, "--precision");
  const at::Device device = device::choose_device(options.device, local_rank, "--device");
  check_weights(options, device);
  auto model = load_model(options.checkpoint, dtypes, device, options.allow_older, options.ema,
                          options.head);
  if (options.weights == "int8") model->transformer->use_int8_weights();
  choose_chat(*model, options, format);
  return model;
}

void check_tensor_ranks(std::int64_t tensor_ranks, const ModelOptions& options, int num_ranks) {
  if (tensor_ranks < 1)
    fail(ErrorKind::usage, "--parallel.tp is {}. It must be at least 1.", tensor_ranks);
  if (tensor_ranks != num_ranks)
    fail(ErrorKind::usage,
         "--parallel.tp is {}, but the number of ranks is {}. Both must be equal: give "
         "--parallel.tp {}, or start the program with mpirun -n {}.",
         tensor_ranks, num_ranks, num_ranks, tensor_ranks);
  if (num_ranks > 1 && options.device == "cuda")
    fail(ErrorKind::usage,
         "--device cuda runs on one rank only. Give --parallel.tp 1, or --device cpu.");
  if (num_ranks > 1 && options.weights != "precision")
    fail(ErrorKind::usage,
         "--weights {} runs on one rank only. Give --parallel.tp 1, or --weights precision.",
         options.weights);
}

ModelPart load_on_ranks(const ModelOptions& options, const ModelRank& place) {
  if (place.world.size() == 1) return {load_model(options, place.local_rank, place.local_size), ""};
  auto mesh = std::make_unique<parallel::Mesh>(place.world,
                                               parallel::ParallelConfig{.tp = place.world.size()});
  return comm::all_or_none(place.world, [&] {
    const text::ChatTemplatePtr format = chosen_format(options);
    set_threads(options, place.local_size);
    const ModelSource source =
        open_source(options.checkpoint, options.allow_older, options.ema, options.head);
    check_heads(source.config, place.world.size());
    ModelPart part =
        load_part(source, nullptr, std::move(mesh),
                  device::precision_dtypes(options.precision, "--precision"), at::kCPU);
    choose_chat(*part.model, options, format);
    return part;
  });
}

std::string hash_weights(LoadedModel& model) {
  Hasher hasher;
  for (parallel::ParamId id = 0; id < model.registry.size(); ++id) {
    hash_weight(hasher, model.registry.spec(id).name, model.registry.main(id));
  }
  return hasher.hex();
}

}  // namespace trireme::generate
