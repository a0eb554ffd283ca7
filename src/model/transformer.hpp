#pragma once
#include <memory>
#include <vector>

#include "model/block.hpp"

namespace trireme {

/// Which part of the model this rank holds: a pipeline stage; the whole model on one stage.
struct ModelPart {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool has_embedding = true;
  bool has_head = true;

  static ModelPart whole(const ModelConfig& config) { return {0, config.num_layers, true, true}; }
};

struct TransformerOptions {
  ops::Path path = ops::Path::fast;
  bool recompute = false;  // blocks keep their input only
  std::uint64_t seed = 0;  // of dropout masks
};

/// What backward of one micro-batch needs.
struct ForwardTape {
  std::vector<LayerTape> blocks;
  at::Tensor head_input;
  at::Tensor head_grad;  // of the head's input, already computed in forward
};

/// The decoder-only transformer as a chain of layers over registry weights. Declares its parameters
/// at construction; the registry is allocated after that.
///
/// forward(batch, grad_scale) returns the sum of losses over the batch's valid targets (fp32 or
/// fp64 scalar) and leaves on the tape what backward(batch, tape) needs; gradients are those of
/// grad_scale * loss sum. With grad_scale = 1 / (valid targets of the whole update) their sum over
/// micro-batches and ranks is the gradient of the mean loss.
class Transformer {
 public:
  Transformer(ParamRegistry& registry, const ModelConfig& config, const ModelPart& part,
              const TransformerOptions& options);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// After ParamRegistry::allocate: tables on the registry's device and dtype.
  void prepare();

  at::Tensor forward(const Microbatch& batch, double grad_scale, ForwardTape& tape);
  void backward(const Microbatch& batch, ForwardTape& tape);

  /// Loss sum without gradients (validation).
  at::Tensor evaluate(const Microbatch& batch);
  /// Logits [B, T, vocab] in fp32 (fp64 for fp64), without gradients.
  at::Tensor logits(const Microbatch& batch);
  /// Logits [B, vocab] of the last position of the next tokens; extends the cache.
  at::Tensor next_logits(const Microbatch& batch, KvCache& cache);
  [[nodiscard]] KvCache make_cache(std::int64_t rows, std::int64_t capacity) const;

  [[nodiscard]] const ModelConfig& config() const { return context_.config; }

  [[nodiscard]] ParamRegistry& registry() { return registry_; }

 private:
  [[nodiscard]] std::vector<at::Tensor> weights_of(const Layer& layer) const;
  [[nodiscard]] at::Tensor embed(const Microbatch& batch) const;
  void embed_backward(const Microbatch& batch, const at::Tensor& grad);
  [[nodiscard]] at::Tensor final_norm(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor hidden_without_grad(const Microbatch& batch) const;

  [[nodiscard]] ParamId head_weight() const {
    return context_.config.tie_embeddings ? embedding_ : head_;
  }

  ParamRegistry& registry_;
  LayerContext context_;
  ModelPart part_;
  bool recompute_;
  ParamId embedding_ = 0;
  ParamId norm_ = 0;
  ParamId head_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace trireme
