#include "generate/load/load_model.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/exchange/special_tokens.hpp"
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
#include "device/kernel_choice.hpp"
#include "generate/load/load_on_ranks.hpp"
#include "generate/load/model_source.hpp"
#include "model/residual_terms.hpp"
#include "model/stages/stages.hpp"
#include "text/chat/own_format.hpp"

namespace trireme::generate {
namespace {

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

text::ChatTemplatePtr chat_of(const ModelSource& source) {
  if (!source.chat.empty() && !checkpoint::is_custom_template(source.chat))
    return text::shared_chat_template(source.chat);
  const std::string jinja = checkpoint::jinja_of(source.files);
  if (jinja.empty()) return nullptr;
  // A run of adapters or an import can have other tokenizer files than the run that trained.
  if (!source.chat.empty() && text::custom_template_name(jinja) != source.chat)
    log::warn(formatted(
        "{} was trained with the chat template {}, but its tokenizer has {}, which is used here",
        source.place.string(), source.chat, text::custom_template_name(jinja)));
  const std::string where = formatted("{}: the chat template", source.place.string());
  text::OwnFormat own;
  if (source.chat.empty()) {
    own = text::own_chat_format(jinja, where);
  } else if (const auto error =
                 comm::capture([&] { own.format = text::jinja_chat_template(jinja, where); })) {
    own.refusal = error->what();  // no other format, because the model was trained with this text
  }
  if (!own.refusal.empty()) log::warn(text::refusal_note(own));
  return own.format;
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

/// Returns the stages of the model. Throws Error(usage) if it cannot be divided into so many.
std::vector<model::StageRange> stages_of(const model::ModelConfig& config, std::int64_t count) {
  if (count > config.num_layers)
    fail(ErrorKind::usage,
         "--parallel.pp {} is more than the {} layers of the model. Each rank needs at least one "
         "layer.",
         count, config.num_layers);
  if (count > 1 && (model::has_residual_terms(config) || config.value_residual))
    fail(ErrorKind::usage,
         "--parallel.pp is {}. It must be 1 for a model with residual scalars, skips, backout or "
         "value residual: a rank sends only the residual stream to the next rank.",
         count);
  if (count > 1 && config.smear && config.tie_embeddings)
    fail(ErrorKind::usage,
         "--parallel.pp is {}. It must be 1 for a model with model.smear and tied embeddings.",
         count);
  return model::balanced_stages(config, count, config.max_seq_len);
}

/// Adds the name and the values of a parameter to the hash of the weights.
void hash_weight(Hasher& hasher, const std::string& name, const at::Tensor& weight) {
  const at::Tensor values = weight.to(at::kCPU).contiguous();
  hasher.update(name);
  hasher.update(std::span(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()));
}

/// Returns another hash, for weights that are rounded to int8 after they were hashed.
std::string int8_hash(const std::string& hash) {
  Hasher hasher;
  hasher.update("int8 " + hash);
  return hasher.hex();
}

/// Copies this rank's part of a parameter to the registry.
void copy_part(const at::Tensor& whole, parallel::ParamRegistry& registry, parallel::ParamId id) {
  at::Tensor part = whole;
  const parallel::Slice& slice = registry.layout().param(id).slice;
  for (std::size_t dim = 0; dim < slice.offset.size(); ++dim)
    part = part.narrow(static_cast<std::int64_t>(dim), slice.offset[dim], slice.extent[dim]);
  registry.main(id).copy_(part);
}

/// Reads all parameters. If several ranks hold the model, each rank reads whole parameters and keeps
/// its part. Then rank 0 reads the parameters of all stages and returns the hash of the whole
/// weights. Otherwise, and on other ranks, returns "".
std::string read_parameters(const ModelSource& source, LoadedModel& loaded) {
  parallel::ParamRegistry& registry = loaded.registry;
  if (loaded.mesh->world().size() == 1) {
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      source.read(registry.spec(id).name, registry.main(id));
    return "";
  }
  std::map<std::string, parallel::ParamId> own;
  for (parallel::ParamId id = 0; id < registry.size(); ++id) own[registry.spec(id).name] = id;
  const bool is_first = loaded.mesh->world().rank() == 0;
  parallel::ParamRegistry of_all;  // declares all parameters and stores none
  if (is_first) model::Transformer(of_all, source.config, {.lora = source.lora});
  const parallel::ParamRegistry& listed = is_first ? of_all : registry;
  const at::TensorOptions options = registry.main(0).options();
  Hasher hasher;
  for (parallel::ParamId id = 0; id < listed.size(); ++id) {
    const parallel::ParamSpec& spec = listed.spec(id);
    const at::Tensor whole = at::empty(spec.shape, options);
    source.read(spec.name, whole);
    if (is_first) hash_weight(hasher, spec.name, whole);
    if (const auto found = own.find(spec.name); found != own.end())
      copy_part(whole, registry, found->second);
  }
  return is_first ? hasher.hex() : "";
}

/// Loads a model on the ranks of `mesh`. `self` is null, or the world of `mesh`.
ModelPart load_part(const ModelSource& source, std::unique_ptr<comm::Communicator> self,
                    std::unique_ptr<parallel::Mesh> mesh, device::ParamDTypes dtypes,
                    at::Device device) {
  const int num_stages = mesh->size(parallel::Axis::pp);
  const std::vector<model::StageRange> stages = stages_of(source.config, num_stages);
  auto loaded = std::unique_ptr<LoadedModel>(new LoadedModel{std::move(self),
                                                             std::move(mesh),
                                                             {},
                                                             nullptr,
                                                             tokenizer_of(source),
                                                             {},
                                                             source.place,
                                                             chat_of(source),
                                                             source.taught,
                                                             source.jinja});
  loaded->end_tokens = end_tokens_of(source, loaded->tokenizer);
  checkpoint::check_tokenizer_fits(loaded->tokenizer.vocab_size(), source.config,
                                   source.place.string());
  loaded->registry.freeze();  // inference: no gradients
  model::TransformerOptions model_options;
  model_options.lora = source.lora;
  model_options.tensor = {loaded->mesh->group(parallel::Axis::tp), /*sequence_parallel=*/false};
  const auto stage = static_cast<std::size_t>(loaded->mesh->rank(parallel::Axis::pp));
  loaded->transformer = std::make_unique<model::Transformer>(
      loaded->registry, source.config, model::ModelStages{stages[stage]}, model_options);
  loaded->registry.allocate(*loaded->mesh, dtypes, device);
  loaded->transformer->prepare();
  std::string hash = read_parameters(source, *loaded);
  loaded->registry.refresh_weights();
  ModelPart part{std::move(loaded), std::move(hash)};
  if (num_stages == 1) return part;
  part.pipeline = &part.model->mesh->group(parallel::Axis::pp);
  for (const model::StageRange& one : stages)
    part.stage_layers = std::max(part.stage_layers, one.end_layer - one.first_layer);
  return part;
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
  device::avoid_cudnn_attention();
  check_weights(options, device);
  auto model = load_model(options.checkpoint, dtypes, device, options.allow_older, options.ema,
                          options.head);
  if (options.weights == "int8") model->transformer->use_int8_weights();
  choose_chat(*model, options, format);
  return model;
}

void check_layout(const ModelLayout& layout, const ModelOptions& options, int num_ranks) {
  for (const auto& [key, value] :
       {std::pair{"--parallel.tp", layout.tp}, {"--parallel.pp", layout.pp}}) {
    if (value < 1 || value > num_ranks)
      fail(ErrorKind::usage,
           "{} is {}, but the number of ranks is {}. The option must be 1 to the number of ranks: "
           "start the program with mpirun -n {}, or give another value.",
           key, value, num_ranks, std::max<std::int64_t>(value, 1));
  }
  if (layout.tp * layout.pp != num_ranks)
    fail(ErrorKind::usage,
         "--parallel.tp is {} and --parallel.pp is {}, but the number of ranks is {}. The product "
         "must be the number of ranks: start the program with mpirun -n {}, or give other values.",
         layout.tp, layout.pp, num_ranks, layout.tp * layout.pp);
  if (num_ranks > 1 && options.device == "cuda")
    fail(ErrorKind::usage,
         "--device cuda runs on one rank only. Start the program without mpirun, or give --device "
         "cpu.");
  if (num_ranks > 1) check_weights(options, at::kCPU);
}

ModelPart load_on_ranks(const ModelOptions& options, const ModelLayout& layout,
                        const ModelRank& place) {
  if (place.world.size() == 1) return {load_model(options, place.local_rank, place.local_size), ""};
  auto mesh = std::make_unique<parallel::Mesh>(
      place.world, parallel::ParallelConfig{.tp = layout.tp, .pp = layout.pp});
  ModelPart part = comm::all_or_none(place.world, [&] {
    const text::ChatTemplatePtr format = chosen_format(options);
    set_threads(options, place.local_size);
    const ModelSource source =
        open_source(options.checkpoint, options.allow_older, options.ema, options.head);
    check_heads(source.config, static_cast<int>(layout.tp));
    ModelPart loaded =
        load_part(source, nullptr, std::move(mesh),
                  device::precision_dtypes(options.precision, "--precision"), at::kCPU);
    choose_chat(*loaded.model, options, format);
    return loaded;
  });
  if (options.weights == "int8") {
    part.model->transformer->use_int8_weights();
    if (!part.weights_hash.empty()) part.weights_hash = int8_hash(part.weights_hash);
  }
  return part;
}

std::string hash_weights(LoadedModel& model) {
  Hasher hasher;
  for (parallel::ParamId id = 0; id < model.registry.size(); ++id) {
    hash_weight(hasher, model.registry.spec(id).name, model.registry.main(id));
  }
  return hasher.hex();
}

}  // namespace trireme::generate
