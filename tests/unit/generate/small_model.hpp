#pragma once
#include <ATen/Parallel.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/factory.hpp"
#include "generate/answer_all.hpp"
#include "support/full_logits.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::testing {

struct SmallOptions {
  const char* preset = "tiny";  // the shape of Qwen3; "minimind-2": of Llama
  at::ScalarType dtype = at::kDouble;
  bool tie = true;
  std::string rope_scaling = {};
  std::int64_t lora_rank = 0;
  std::int64_t padding = 0;                       // rows of the embedding without a token
  void (*change)(model::ModelConfig&) = nullptr;  // changes the config before it is resolved
  at::Device device = at::kCPU;
};

/// A random model with the vocabulary of small_tokenizer.
struct SmallModel {
  explicit SmallModel(const SmallOptions& options = {}) {
    at::set_num_threads(1);
    model::ModelConfig config = model::model_preset(options.preset);
    config.hidden_size = 32;
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 32;
    config.intermediate_size = 40;
    config.max_seq_len = 256;
    config.tie_embeddings = options.tie;
    config.rope_scaling = options.rope_scaling;
    if (options.change != nullptr) options.change(config);
    model::resolve(config, static_cast<std::int64_t>(tokenizer.vocab_size()) + options.padding);
    model::TransformerOptions model_options;
    model_options.path = options.dtype == at::kDouble ? ops::Path::plain : ops::Path::fast;
    model_options.lora.rank = options.lora_rank;
    model_options.lora.alpha = static_cast<double>(options.lora_rank);
    model = std::make_unique<model::Transformer>(registry, config, model_options);
    registry.freeze();
    registry.allocate(mesh, {options.dtype, options.dtype}, options.device);
    model->prepare();
    registry.initialize(11);
    at::manual_seed(3);
    for (parallel::ParamId id = 0; id < registry.size(); ++id) {
      const at::Tensor weight = registry.main(id);
      if (registry.spec(id).name.ends_with(".bias")) weight.normal_(0, 0.3);
      if (registry.spec(id).name.ends_with("_scalar")) weight.add_(0.7);
      if (weight.dim() < 2) continue;
      if (registry.spec(id).name.ends_with("lora_B.weight")) weight.normal_(0, 0.1);
      weight.mul_(8.0);  // far from uniform, so that an error is visible
    }
    registry.refresh_weights();
  }

  /// Returns the predictions of the model, computed without a cache.
  [[nodiscard]] at::Tensor logits_after(const std::vector<std::uint32_t>& text) const {
    parallel::Microbatch batch;
    const std::vector<std::int64_t> ids(text.begin(), text.end());
    batch.tokens = at::tensor(ids, at::kLong).view({1, -1});
    batch.positions = at::arange(batch.length(), at::kLong).view({1, -1});
    batch.samples = at::zeros({1}, at::kLong);
    return full_logits(*model, batch).select(0, 0);  // [T, vocab]
  }

  [[nodiscard]] std::vector<std::uint32_t> greedy_uncached(std::vector<std::uint32_t> text,
                                                           std::int64_t count) const {
    std::vector<std::uint32_t> drawn;
    for (std::int64_t i = 0; i < count; ++i) {
      const at::Tensor last = logits_after(text).select(0, -1);
      drawn.push_back(static_cast<std::uint32_t>(last.argmax().item<std::int64_t>()));
      text.push_back(drawn.back());
    }
    return drawn;
  }

  text::Tokenizer tokenizer = text::samples::small_tokenizer();
  std::unique_ptr<comm::Communicator> self = comm::make_world("self", {});
  parallel::Mesh mesh{*self, {}};
  parallel::ParamRegistry registry;
  std::unique_ptr<model::Transformer> model;
};

inline std::vector<std::uint32_t> ids_of(const generate::Answer& answer) {
  std::vector<std::uint32_t> ids;
  for (const generate::TokenReport& token : answer.tokens) ids.push_back(token.id);
  return ids;
}

/// Returns prompts of `shortest` to `longest` random ids.
inline std::vector<std::vector<std::uint32_t>> random_prompts(std::size_t count,
                                                              std::size_t shortest,
                                                              std::size_t longest) {
  std::mt19937 random(17);
  std::vector<std::vector<std::uint32_t>> prompts(count);
  for (auto& prompt : prompts) {
    prompt.resize(shortest + random() % (longest - shortest + 1));
    for (auto& id : prompt) id = static_cast<std::uint32_t>(random() % 700);
  }
  return prompts;
}

inline generate::Request greedy(std::vector<std::uint32_t> prompt, std::int64_t max_tokens) {
  generate::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

inline std::vector<generate::Request> greedy_requests(
    const std::vector<std::vector<std::uint32_t>>& prompts, std::int64_t max_tokens) {
  std::vector<generate::Request> requests;
  for (const auto& prompt : prompts) requests.push_back(greedy(prompt, max_tokens));
  return requests;
}

}  // namespace trireme::testing
