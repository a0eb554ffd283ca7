#include "model/value_embedding.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "model/residual_terms.hpp"
#include "model/weight_source.hpp"
#include "ops/embedding.hpp"
#include "ops/linear.hpp"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr double kGateScale = 3;

/// Returns the values in qkv [.., all] as [.., heads, D].
at::Tensor values_of(const at::Tensor& qkv, const at::Tensor& table) {
  const std::int64_t width = table.size(0) * table.size(2);
  return qkv.narrow(-1, qkv.size(-1) - width, width).unflatten(-1, {table.size(0), table.size(2)});
}

/// Returns the table [heads, vocab, D] as one list of rows.
at::Tensor all_rows(const at::Tensor& table) {
  return table.view({-1, table.size(2)});
}

/// Returns the index into all_rows() of each token and head: [.., heads].
at::Tensor row_index(const at::Tensor& table, const at::Tensor& tokens) {
  const at::Tensor first = at::arange(table.size(0), tokens.options()).mul_(table.size(1));
  return tokens.unsqueeze(-1) + first;
}

struct AddValues : torch::autograd::Function<AddValues> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv,
                            const at::Tensor& gate_logits, const weighted::Source& table,
                            const at::Tensor& tokens, ops::Path path) {
    const at::Tensor result = qkv.clone();
    add_rows(result, gate_logits, table.weight(), tokens);
    ctx->save_for_backward({gate_logits, tokens});
    ctx->saved_data["fast"] = path == ops::Path::fast;
    table.keep(ctx, "table");
    return result;
  }

  /// Adds the table's rows, each head times its gate, to the values of qkv.
  static void add_rows(const at::Tensor& qkv, const at::Tensor& gate_logits,
                       const at::Tensor& table, const at::Tensor& tokens) {
    values_of(qkv, table)
        .add_(at::embedding(all_rows(table), row_index(table, tokens))
                  .mul_(gate_logits.sigmoid().mul_(kGateScale).unsqueeze(-1)));
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const weighted::Source table = weighted::Source::kept(ctx, "table");
    const at::Tensor weight = table.weight();
    const at::Tensor index = row_index(weight, saved[1]);
    const at::Tensor grad = values_of(grads[0], weight);  // [B, T, heads, D]
    const at::Tensor sigmoid = saved[0].sigmoid();
    const at::Tensor along = (grad * at::embedding(all_rows(weight), index)).sum(-1);
    const at::Tensor grad_gate = along * sigmoid * (1 - sigmoid) * kGateScale;
    if (table.trained()) {
      const at::Tensor grad_rows =
          (grad * (sigmoid * kGateScale).unsqueeze(-1)).reshape({-1, weight.size(2)});
      const auto path = ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
      table.registry->run_or_defer([table, rows = index.flatten(), grad_rows, path] {
        const parallel::ParamId id = table.ref.first;
        ops::add_embedding_gradient(all_rows(table.registry->master_grad(id)), rows, grad_rows,
                                    path);
        table.registry->gradient_added({id});
      });
    }
    return {grads[0], grad_gate, {}, {}, {}};
  }
};

}  // namespace

ValueEmbedding::ValueEmbedding(parallel::ParamRegistry& registry, const LayerContext& context,
                               const std::string& prefix)
    : context_(context), registry_(registry) {
  const ModelConfig& c = context.config;
  using enum parallel::InitDistribution::Kind;
  const bool is_uniform = c.init == "uniform";
  parallel::ParamSpec table{prefix + "self_attn.value_embed.weight",
                            {c.num_kv_heads, c.vocab_size, c.head_dim}};
  if (is_uniform) table.init = {uniform, std::sqrt(3.0 / static_cast<double>(c.hidden_size))};
  table.table = parallel::ParamSpec::Table::value;
  table.split = parallel::DimSplit{0, parallel::Axis::tp, 1, c.num_heads};
  table.frozen = context.lora.on();
  table_ = {registry_.declare(std::move(table))};
  parallel::ParamSpec gate{prefix + "self_attn.value_gate.weight",
                           {c.num_kv_heads, value_gate_inputs(c)}};
  if (is_uniform) gate.init = {uniform, 0.01, 0.01};
  gate.split = parallel::DimSplit{0, parallel::Axis::tp, 1, c.num_heads};
  gate.frozen = context.lora.on();
  gate_ = {registry_.declare(std::move(gate))};
}

at::Tensor ValueEmbedding::added(const parallel::Microbatch& batch, const at::Tensor& x,
                                 const at::Tensor& qkv) const {
  const at::Tensor first = x.narrow(-1, 0, value_gate_inputs(context_.config)).contiguous();
  const at::Tensor gate_logits =
      weighted::column_parallel_linear(context_.tensor, first, registry_, gate_);
  return AddValues::apply(qkv, gate_logits, weighted::Source{&registry_, table_}, batch.tokens,
                          context_.path);
}

void ValueEmbedding::add_cached(const at::Tensor& tokens, const at::Tensor& x,
                                const at::Tensor& qkv) const {
  const at::Tensor first = x.narrow(-1, 0, value_gate_inputs(context_.config)).contiguous();
  const at::Tensor gate_logits =
      ops::inference_linear(first, registry_.weight(gate_), context_.path);
  AddValues::add_rows(qkv, gate_logits, registry_.weight(table_), tokens);
}

}  // namespace trireme::model
