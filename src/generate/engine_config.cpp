#include "generate/engine_config.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/error.hpp"
#include "device/device.hpp"
#include "generate/cache/kv_blocks.hpp"
#include "model/transformer.hpp"

namespace trireme::generate {
namespace {

constexpr std::int64_t kMib = std::int64_t{1} << 20;
/// Upper limit of --max-batch, so that byte counts fit into 64 bits.
constexpr std::int64_t kMostBatch = std::int64_t{1} << 16;
constexpr std::int64_t kMostMib = std::int64_t{1} << 30;
/// The number of tokens per sequence that the default budget assumes.
constexpr std::int64_t kUsualText = 2048;

/// Returns the bytes of one block on the rank with the most layers.
std::int64_t kv_block_bytes(model::Transformer& model, const ModelSplit& split) {
  const model::ModelConfig& c = model.config();
  const std::int64_t key_heads =
      model::local_heads(c, model.tensor().size(), model.tensor().rank()).key.count();
  const std::int64_t layers = split.layers > 0 ? split.layers : c.num_layers;
  return 2 * layers * key_heads * c.head_dim * KvBlocks::kTokens *
         static_cast<std::int64_t>(c10::elementSize(model.registry().dtypes().compute));
}

/// Returns the number of context tokens for which attention takes as long as the rest of a row. A
/// row multiplies each active parameter once. For each token before the row, attention multiplies
/// two vectors of all heads, and each of these products takes twice as long. For minimind-3, the
/// result is 2,400 tokens; the measured value is 2,900.
std::int64_t row_cost_tokens(const model::Transformer& model) {
  const model::ModelConfig& c = model.config();
  return std::max<std::int64_t>(
      c.num_active_parameters(1) / (4 * c.num_layers * c.num_heads * c.head_dim), 1);
}

}  // namespace

void check_batch(const char* option, std::int64_t batch) {
  if (batch < 1 || batch > kMostBatch)
    fail(ErrorKind::usage, "{} {}, must be in [1, {}]", option, batch, kMostBatch);
}

void check_cuda_graph(const std::string& mode) {
  if (std::ranges::find(kCudaGraphModes, mode) == kCudaGraphModes.end())
    fail(ErrorKind::usage, "--cuda-graph {}, must be auto, true or false", mode);
}

EngineConfig resolved(EngineConfig config, model::Transformer& model, const ModelSplit& split) {
  const std::int64_t longest = model.config().max_seq_len;
  check_batch("--max-batch", config.max_batch);
  if (config.max_context < 0 || config.max_context > longest) {
    fail(ErrorKind::usage, "--max-context {}, must be 0 to {} (model.max_seq_len)",
         config.max_context, longest);
  }
  if (config.kv_cache_mib < 0 || config.kv_cache_mib > kMostMib) {
    fail(ErrorKind::usage, "--kv-cache-mib {}, must be 0 (automatic) to {}", config.kv_cache_mib,
         kMostMib);
  }
  check_cuda_graph(config.cuda_graph);
  const bool chosen = config.max_context > 0;
  if (!chosen) config.max_context = longest;
  const std::int64_t block = kv_block_bytes(model, split);
  const auto mib_of = [&](std::int64_t tokens) {
    return (KvBlocks::needed(tokens) * block + kMib - 1) / kMib;
  };
  if (config.kv_cache_mib == 0) {
    // The ranks of a model may share the memory of one machine.
    const double free_bytes = device::device_memory(model.registry().device()).available /
                              static_cast<double>(split.ranks);
    const auto quarter = static_cast<std::int64_t>(std::min(free_bytes / 4, 1e15)) / kMib;
    const std::int64_t usual = mib_of(config.max_batch * std::min(config.max_context, kUsualText));
    config.kv_cache_mib =
        std::max(std::min(usual, quarter), std::min(mib_of(config.max_context), 2 * quarter));
  }
  const bool gpu = model.registry().device().is_cuda();
  if (config.prompt_tokens == 0) config.prompt_tokens = gpu ? 1024 : 192;
  if (config.prompt_tokens_while_decoding == 0) {
    config.prompt_tokens_while_decoding = gpu ? 256 : 24;
    if (!gpu && config.row_cost_tokens == 0) config.row_cost_tokens = row_cost_tokens(model);
  }
  const std::int64_t room = num_kv_blocks(config, model, split) * KvBlocks::kTokens;
  if (!chosen) config.max_context = std::min(config.max_context, room);
  const std::int64_t longest_text = std::max<std::int64_t>(config.max_context, 1);
  if (room < longest_text) {
    fail(
        ErrorKind::usage,
        "a KV cache of {} MiB holds {} tokens, but one sequence may have {}: raise --kv-cache-mib to {}{}",
        config.kv_cache_mib, room, longest_text, mib_of(longest_text),
        chosen ? cat(" or lower ", config.context_option) : "");
  }
  return config;
}

std::int64_t num_kv_blocks(const EngineConfig& config, model::Transformer& model,
                           const ModelSplit& split) {
  return config.kv_cache_mib * kMib / kv_block_bytes(model, split);
}

int most_threads(const model::Transformer& model, const ModelSplit& split) {
  const parallel::ParamRegistry& registry = model.registry();
  const at::ScalarType compute = registry.dtypes().compute;
  const bool may_choose = registry.device().is_cpu() && split.ranks == 1 &&
                          model.path() == ops::Path::fast &&
                          (compute == at::kFloat || compute == at::kBFloat16);
  return may_choose ? at::get_num_threads() : 1;
}

}  // namespace trireme::generate
