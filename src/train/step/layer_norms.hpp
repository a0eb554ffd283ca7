#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/measures.hpp"
#include "parallel/mesh.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::train {

/// Reports the norms of each layer as measures: grad_norm/layer_03 (before clipping),
/// update_norm/layer_03 (new weights minus old weights) and weight_norm/layer_03 (after the
/// update). The embedding and the head are layers of their own. Only trainable parameters count.
///
/// Each rank sums the squares of the elements that it owns. The sums travel in the reduction of the
/// report, so a layout adds no collective to a step. The squares of all grad_norm values add up to
/// the square of the gradient norm. With local steps, a norm is the root mean square over replicas.
///
/// With histograms, it also reports gradients/layer_03 (before clipping) and weights/layer_03: the
/// number of elements in each bucket of ExponentialBuckets, over all ranks.
///
/// In the steps that it measures, the old master weights of this rank are copied.
class LayerNorms {
 public:
  /// Measures every `every` steps; 0: never. The registry must be allocated. The arguments must
  /// outlive this object. Collective over the world if `every` is not 0.
  LayerNorms(const parallel::ParamRegistry& registry, const parallel::Mesh& mesh,
             std::int64_t num_layers, Measures& measures, std::int64_t every,
             bool histograms = false);

  /// Starts an update.
  void begin(std::int64_t step) { due_ = every_ > 0 && step % every_ == 0; }

  /// Sums the squares of the gradients and copies the weights. Call it when the gradients are
  /// summed over the ranks but not clipped. `loss_scale`: the factor that they still have. Does not
  /// wait for a GPU.
  void before_update(double loss_scale);

  /// Sums the squares of updates and weights, and records the measures. Waits for the GPU.
  void after_update();

 private:
  enum Kind : std::size_t { kGrad, kUpdate, kWeight, kNumKinds };

  enum Histogram : std::size_t { kGradients, kWeights };

  /// Neighboring elements of one parameter that this rank owns.
  struct Span {
    std::size_t unit = 0;
    std::int64_t begin = 0;       // element of the unit
    std::int64_t part_begin = 0;  // element of this rank's part
    std::int64_t count = 0;
    std::int64_t layer = 0;  // index in the list of layers
    bool has_norm = true;    // false: the gradient norm does not count the gradient (sign_rate)
  };

  [[nodiscard]] bool has_histograms() const { return !histogram_ids_.empty(); }

  void record_histograms();

  const parallel::ParamRegistry& registry_;
  Measures& measures_;
  std::int64_t every_;
  double replicas_ = 1;
  bool due_ = false;
  std::vector<Span> spans_;
  // by kind and layer; not set if the layer has no trainable parameter
  std::vector<std::vector<std::optional<Measures::Id>>> ids_;
  std::vector<std::vector<std::optional<Measures::Id>>> histogram_ids_;  // by Histogram and layer
  std::vector<at::Tensor> words_;   // by kind: [layers, ExactSum::kWords + 1]
  std::vector<at::Tensor> counts_;  // by Histogram: [layers, ExponentialBuckets::kNum]
  std::vector<at::Tensor> old_;     // by span
  double loss_scale_ = 1;
};

/// Returns the names of the layers of a model: embedding, layer_00, ..., head.
std::vector<std::string> layer_names(std::int64_t num_layers);

/// Returns the index in layer_names() of the parameters that are declared in FSDP unit `unit`.
std::size_t layer_of_unit(const std::string& unit, std::int64_t num_layers);

}  // namespace trireme::train
