#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/layer.hpp"
#include "model/layer_context.hpp"
#include "model/residual_terms.hpp"
#include "model/weighted.hpp"

namespace trireme::model {

/// Adds the residual_terms() of a layer, or of the final norm, to the residual stream.
class ResidualMix : public Layer {
 public:
  /// Declares the scalars "<prefix><name>" [1].
  ResidualMix(parallel::ParamRegistry& registry, const LayerContext& context, std::int64_t layer,
              const std::string& prefix);

  [[nodiscard]] bool empty() const { return terms_.empty(); }

  /// `sources` are the hidden states of the terms, in order. Returns x itself without terms.
  [[nodiscard]] at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& x,
                                   std::span<const at::Tensor> sources) const override;
  [[nodiscard]] at::Tensor mixed(const at::Tensor& x, std::span<const at::Tensor> sources) const;

 private:
  parallel::ParamRegistry& registry_;
  std::vector<weighted::MixWeights> terms_;
};

/// Keeps one tensor for each hidden state that a later layer reads: the hidden states in a forward
/// pass, or the sums of their gradients in a backward pass.
class ResidualSources {
 public:
  explicit ResidualSources(const ModelConfig& config);

  /// Keeps the output of a layer (kEmbeddingSource: of the embedding) if a later layer reads it.
  void put(std::int64_t layer, const at::Tensor& x);
  /// Keeps the output of a layer with this input, as put() does, and the values that are joined to it
  /// (ValueResidual). Returns the residual stream in the output.
  [[nodiscard]] at::Tensor put_output(std::int64_t layer, const at::Tensor& output,
                                      const at::Tensor& input);
  /// Returns the sources of a layer, in the order of its terms; then the values of the first layer.
  [[nodiscard]] std::vector<at::Tensor> of(std::int64_t layer) const;
  /// Returns the sources of a layer, [count, D] each, where `rows` are the rows to take of sources
  /// that have more rows.
  [[nodiscard]] std::vector<at::Tensor> of_rows(std::int64_t layer, std::int64_t count,
                                                const at::Tensor& rows) const;

  /// Adds the gradients of the sources of a layer.
  void add_grads(std::int64_t layer, std::span<const at::Tensor> grads);
  /// Returns the gradient of the output of a layer: `grad` and the gradients from later readers,
  /// joined to the gradient of its values if later layers read them.
  [[nodiscard]] at::Tensor whole_grad(std::int64_t layer, const at::Tensor& grad);

 private:
  std::optional<std::int64_t> gives_values_;        // the layer with kFirstValues, if it is read
  std::vector<std::vector<std::int64_t>> sources_;  // by reading layer; last: the final norm
  std::map<std::int64_t, at::Tensor> kept_;         // by source; undefined: not known yet
};

}  // namespace trireme::model
