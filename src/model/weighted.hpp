#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "model/recompute.hpp"
#include "ops/dropout.hpp"
#include "ops/path.hpp"
#include "ops/rope.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// The operations of a layer that have weights: the seam between layers and the registry.
///
/// Each asks the registry for its weight when it runs, and again in backward: autograd keeps
/// activations alone, so a weight may be gathered for each use and its memory given to another in
/// between. In backward each gives what its weight's gradient is made of to the registry at once,
/// while the rest of the layer is still to come. A frozen weight has no gradient, and what only that
/// would need is not kept.
namespace trireme::weighted {

/// Low-rank terms beside a linear whose weights may be fused: to the rows of y that one parameter
/// makes is added scale * B (A x).
struct Adapters {
  struct Term {
    WeightRef b;                 // [rows, rank]
    std::int64_t first_row = 0;  // of y's, on this rank
  };

  WeightRef a{0, 0};  // of all terms, one below another: [terms * rank, in]
  std::vector<Term> terms{};
  std::int64_t rank = 0;
  double scale = 1;
};

/// How a pass goes through adapters, which outlive it.
struct AdaptersUse {
  const Adapters* adapters = nullptr;         // null: none
  std::optional<ops::DropoutMask> dropout{};  // of their input, [B, T, in]
  ops::Path path = ops::Path::fast;
};

/// x [.., in] -> x W^T [.., out]; W [out, in], fused parameters one below another. With `again`, x
/// is not kept for backward but made again. Of adapters A x, [tokens, terms * rank], is kept.
at::Tensor linear(const at::Tensor& x, ParamRegistry& registry, WeightRef weight,
                  const Again& again = {}, const AdaptersUse& adapters = {});

/// linear of x, tokens of the residual stream, that enter tensor parallelism; `again` makes what
/// entered: every rank's. In backward the weight's gradient is formed while tokens are on their way.
at::Tensor enter_linear(const TensorGroup& group, const at::Tensor& x, ParamRegistry& registry,
                        WeightRef weight, const Again& again = {},
                        const AdaptersUse& adapters = {});

/// linear of x [B, T, in], whose results leave tensor parallelism to the residual stream.
at::Tensor linear_leave(const TensorGroup& group, const at::Tensor& x, ParamRegistry& registry,
                        WeightRef weight, const Again& again = {},
                        const AdaptersUse& adapters = {});

/// ops::rms_norm_forward over a registry weight [D].
at::Tensor rms_norm(const at::Tensor& x, ParamRegistry& registry, WeightRef weight, double eps,
                    ops::Path path);

struct SumAndNorm {
  at::Tensor sum;
  at::Tensor y;
};

/// ops::add_rms_norm_forward over a registry weight [D].
SumAndNorm add_rms_norm(const at::Tensor& x, const at::Tensor& residual, ParamRegistry& registry,
                        WeightRef weight, double eps, ops::Path path);

/// The norms' weights of queries and keys [D]; no norm: no weights.
struct QkNormWeights {
  std::optional<WeightRef> query{};
  std::optional<WeightRef> key{};
};

/// ops::qkv_norm_rope_forward; the weights of `setup` are left empty.
ops::QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                                 std::int64_t num_kv_heads, ParamRegistry& registry,
                                 const QkNormWeights& weights, const ops::QkNormRope& setup,
                                 ops::Path path);

}  // namespace trireme::weighted
