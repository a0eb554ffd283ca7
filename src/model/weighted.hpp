#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "model/fp8_scaling.hpp"
#include "model/layer.hpp"
#include "ops/dropout.hpp"
#include "ops/late_result.hpp"
#include "ops/norm.hpp"
#include "ops/path.hpp"
#include "ops/rope.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// The operations of a layer that have weights: the interface between layers and the registry.
///
/// Each operation asks the registry for its weight when it runs, and again in backward. Autograd
/// keeps only activations, so a weight may be gathered for each use and its memory reused in
/// between. Backward gives the operands of a weight gradient to the registry at once, before the
/// rest of the layer is processed, or as soon as the input has been computed again
/// (AdaptersUse::late). Tensors needed only for a frozen weight are not saved.
namespace trireme::model::weighted {

/// Low-rank terms beside a linear, which may consist of fused parameters. Each term adds
/// scale * B (A x) to the rows of y that one parameter produces.
struct Adapters {
  struct Term {
    parallel::WeightRef b;       // [rows, rank]
    std::int64_t first_row = 0;  // first row of y on this rank
  };

  parallel::WeightRef a{0, 0};  // all terms, stacked: [terms * rank, in]
  std::vector<Term> terms{};
  std::int64_t rank = 0;
  double scale = 1;
};

/// The fp8 scaling of one call and the index of its linear (Fp8Scaling::scales).
struct Fp8Use {
  Fp8Scaling* scaling = nullptr;  // null: products in the dtype of the weights
  std::int64_t linear = 0;
  bool is_only_user = false;  // backward of no other operation needs x
};

/// The adapters and settings of one call; the adapters and the scaling outlive it.
struct AdaptersUse {
  const Adapters* adapters = nullptr;         // null: no adapters
  std::optional<ops::DropoutMask> dropout{};  // on their input, [B, T, in]
  ops::Path path = ops::Path::fast;
  Fp8Use fp8{};
  ops::LateResultPtr late{};  // if set, the input is not saved and comes from here in backward
};

/// Computes x W^T: x [.., in] to [.., out]; W [out, in] may be several fused parameters. With
/// `again` or AdaptersUse::late, x is computed again in backward instead of saved. With fp8, the
/// codes of x^T are saved instead of x if no other operation needs x. With adapters, A x is saved.
at::Tensor linear(const at::Tensor& x, parallel::ParamRegistry& registry,
                  parallel::WeightRef weight, const RecomputeFn& again = {},
                  const AdaptersUse& adapters = {});

/// Column-parallel linear: x, tokens of the residual stream, is gathered first. `again` recomputes
/// the gathered input. In backward, the weight gradient is computed during communication.
at::Tensor column_parallel_linear(const parallel::TensorGroup& group, const at::Tensor& x,
                                  parallel::ParamRegistry& registry, parallel::WeightRef weight,
                                  const RecomputeFn& again = {}, const AdaptersUse& adapters = {});

/// Row-parallel linear: x [B, T, in]; the results are reduced back to the residual stream.
at::Tensor row_parallel_linear(const parallel::TensorGroup& group, const at::Tensor& x,
                               parallel::ParamRegistry& registry, parallel::WeightRef weight,
                               const RecomputeFn& again = {}, const AdaptersUse& adapters = {});

/// Adds a registry bias [N], which may be several fused parameters, to y [.., N].
at::Tensor add_bias(const at::Tensor& y, parallel::ParamRegistry& registry,
                    parallel::WeightRef bias);

/// The weight of a norm without weights (model.norm_gain = false).
constexpr parallel::WeightRef kNoGain{0, 0};

/// Returns the weight of a norm over x [.., D]; ones [D] for kNoGain.
at::Tensor gain_of(parallel::ParamRegistry& registry, parallel::WeightRef weight,
                   const at::Tensor& x);

/// Adds the output of attention or of the MLP to the residual stream x.
at::Tensor residual_sum(const at::Tensor& x, const at::Tensor& branch);

/// Like ops::norm_forward, with a registry weight or kNoGain. If `late` is awaited, backward gives
/// it the result; only for RMSNorm.
at::Tensor norm(const at::Tensor& x, parallel::ParamRegistry& registry, parallel::WeightRef weight,
                const ops::NormSetup& setup, const ops::LateResultPtr& late = {});

struct SumAndNorm {
  at::Tensor sum;
  at::Tensor y;
};

/// Like ops::add_norm_forward, with a registry weight or kNoGain. `late` is that of norm().
SumAndNorm add_norm(const at::Tensor& x, const at::Tensor& residual,
                    parallel::ParamRegistry& registry, parallel::WeightRef weight,
                    const ops::NormSetup& setup, const ops::LateResultPtr& late = {});

/// The trained numbers [1] of mix(). Without `scale`, x is not scaled.
struct MixWeights {
  parallel::WeightRef factor;
  std::optional<parallel::WeightRef> scale{};
  double sign = 1;
};

/// Returns scale * x + sign * factor * source.
at::Tensor mix(const at::Tensor& x, const at::Tensor& source, parallel::ParamRegistry& registry,
               const MixWeights& weights);

struct SmearWeights {
  parallel::WeightRef gate;    // [C]
  parallel::WeightRef scalar;  // [1]
};

/// Returns x + scalar * sigmoid(gate . x[:C]) * previous, for x and previous [.., D].
at::Tensor smear(const at::Tensor& x, const at::Tensor& previous, parallel::ParamRegistry& registry,
                 const SmearWeights& weights);

/// The norm weights [D] of queries and keys, or kNoGain; empty without QK norm.
struct QkNormWeights {
  std::optional<parallel::WeightRef> query{};
  std::optional<parallel::WeightRef> key{};
};

/// The shape of a norm over all query heads and one over all key heads of a layer. A rank of tp holds
/// some of the heads; ranks add up the squares (one all-reduce of 2 numbers per token).
struct WholeQkNorm {
  std::int64_t queries;    // local elements of queries in a row of qkv
  std::int64_t keys;       // local elements of keys
  std::int64_t first_own;  // local keys before this one belong to an earlier rank, which adds them
  std::int64_t all_queries;
  std::int64_t all_keys;
  double eps;
};

/// Normalizes the queries and the keys of qkv [B, T, queries + 2 keys], each as one row over all
/// ranks of `group`, with registry weights [queries] and [keys]. Computes in fp32 (fp64 for fp64).
/// Collective over `group`, also in backward.
at::Tensor whole_qk_norm(const at::Tensor& qkv, const parallel::TensorGroup& group,
                         parallel::ParamRegistry& registry, const QkNormWeights& weights,
                         const WholeQkNorm& shape);

/// Like ops::qkv_norm_rope_forward; the weights in `setup` must be empty.
ops::QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                                 std::int64_t num_kv_heads, parallel::ParamRegistry& registry,
                                 const QkNormWeights& weights, const ops::QkNormRope& setup,
                                 ops::Path path);

}  // namespace trireme::model::weighted
