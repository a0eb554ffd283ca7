#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/weight_source.hpp"
#include "model/weighted.hpp"
#include "parallel/collectives.hpp"

/// QK norm over all heads, which may be on several ranks of tp.
namespace trireme::model::weighted {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Returns the parts of a row of qkv: queries, keys, and the keys that this rank adds.
struct QkParts {
  at::Tensor queries, keys, own_keys;

  QkParts(const at::Tensor& rows, const WholeQkNorm& shape)
      : queries(rows.narrow(-1, 0, shape.queries)),
        keys(rows.narrow(-1, shape.queries, shape.keys)),
        own_keys(keys.narrow(-1, shape.first_own, shape.keys - shape.first_own)) {}
};

void add_over_ranks(const parallel::TensorGroup& group, const at::Tensor& sums) {
  if (group.size() > 1)
    parallel::all_reduce(group.group(), sums, comm::ReduceOp::sum, "qk norm")->wait();
}

at::Tensor weight_of(const Source& source, const at::Tensor& rows) {
  return gain_of(*source.registry, source.ref, rows);
}

struct WholeQkNormFunction : torch::autograd::Function<WholeQkNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const parallel::TensorGroup* group, parallel::ParamRegistry* registry,
                            const QkNormWeights& weights, const WholeQkNorm& shape) {
    const Source query{registry, *weights.query};
    const Source key{registry, *weights.key};
    query.keep(ctx, "query");
    key.keep(ctx, "key");
    const auto wide = ops::accumulate_type(qkv);
    const QkParts parts(qkv, shape);
    const at::Tensor rstd = at::stack({parts.queries.to(wide).square().sum(-1),
                                       parts.own_keys.to(wide).square().sum(-1)});  // [2, B, T]
    add_over_ranks(*group, rstd);
    rstd[0].div_(static_cast<double>(shape.all_queries));
    rstd[1].div_(static_cast<double>(shape.all_keys));
    rstd.add_(shape.eps).rsqrt_();
    const at::Tensor y = qkv.clone();
    const QkParts out(y, shape);
    out.queries.copy_(parts.queries.to(wide) * rstd[0].unsqueeze(-1) *
                      weight_of(query, parts.queries));
    out.keys.copy_(parts.keys.to(wide) * rstd[1].unsqueeze(-1) * weight_of(key, parts.keys));
    ctx->save_for_backward({qkv, rstd});
    ctx->saved_data["group"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(group));
    ctx->saved_data["shape"] = c10::List<std::int64_t>(
        {shape.queries, shape.keys, shape.first_own, shape.all_queries, shape.all_keys});
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto* group = reinterpret_cast<const parallel::TensorGroup*>(
        static_cast<std::intptr_t>(ctx->saved_data["group"].toInt()));
    const auto sizes = ctx->saved_data["shape"].toIntVector();
    const WholeQkNorm shape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], 0};
    const Source query = Source::kept(ctx, "query");
    const Source key = Source::kept(ctx, "key");
    const auto wide = ops::accumulate_type(saved[0]);
    const QkParts x(saved[0], shape);
    const QkParts grad(grads[0], shape);
    const at::Tensor normed_q = x.queries.to(wide) * saved[1][0].unsqueeze(-1);
    const at::Tensor normed_k = x.keys.to(wide) * saved[1][1].unsqueeze(-1);
    const at::Tensor grad_q = grad.queries.to(wide);
    const at::Tensor grad_k = grad.keys.to(wide);
    const at::Tensor scaled_q = grad_q * weight_of(query, grad_q);
    const at::Tensor scaled_k = grad_k * weight_of(key, grad_k);
    const at::Tensor means =
        at::stack({(scaled_q * normed_q).sum(-1), (scaled_k * normed_k).sum(-1)});  // [2, B, T]
    add_over_ranks(*group, means);
    means[0].div_(static_cast<double>(shape.all_queries));
    means[1].div_(static_cast<double>(shape.all_keys));
    const at::Tensor result = grads[0].clone(at::MemoryFormat::Contiguous);
    const QkParts out(result, shape);
    out.queries.copy_((scaled_q - normed_q * means[0].unsqueeze(-1)) * saved[1][0].unsqueeze(-1));
    // The gradients of a key that several ranks hold are added later, so only one rank subtracts
    // the mean.
    scaled_k.narrow(-1, shape.first_own, shape.keys - shape.first_own)
        .sub_(normed_k.narrow(-1, shape.first_own, shape.keys - shape.first_own) *
              means[1].unsqueeze(-1));
    out.keys.copy_(scaled_k * saved[1][1].unsqueeze(-1));
    key.give((grad_k * normed_k).flatten(0, 1).sum(0));
    query.give((grad_q * normed_q).flatten(0, 1).sum(0));
    return {result, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor whole_qk_norm(const at::Tensor& qkv, const parallel::TensorGroup& group,
                         parallel::ParamRegistry& registry, const QkNormWeights& weights,
                         const WholeQkNorm& shape) {
  return WholeQkNormFunction::apply(qkv, &group, &registry, weights, shape);
}

}  // namespace trireme::model::weighted
