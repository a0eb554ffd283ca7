#include "model/experts/experts.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/operation_record.hpp"
#include "model/experts/router_balance.hpp"
#include "ops/gated_activation.hpp"
#include "ops/linear.hpp"
#include "ops/product.hpp"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct SavedExperts : torch::CustomClassHolder {
  const Experts* experts;  // outlives every graph that uses it
  parallel::Microbatch batch;
  RecomputeFn again;
  at::Tensor x;  // [N, D]; undefined: recomputed by `again`
  Experts::Saved saved;
};

struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<SavedExperts>& held) {
    const parallel::TensorGroup& tensor = held->experts->tensor();
    const at::Tensor whole = tensor.whole(x);
    const at::Tensor rows = whole.reshape({-1, whole.size(-1)});
    const at::Tensor y = held->experts->apply(held->batch, rows, held->saved);
    if (!held->experts->needs_input_for_gradients()) {
      held->again = {};
    } else if (!held->again) {
      held->x = rows;
    }
    ctx->saved_data["held"] = c10::IValue::make_capsule(held);
    return tensor.sum(y.view(whole.sizes()));
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto held =
        c10::static_intrusive_pointer_cast<SavedExperts>(ctx->saved_data["held"].toCapsule());
    ctx->saved_data.erase("held");
    const parallel::TensorGroup& tensor = held->experts->tensor();
    const at::Tensor grad_y = tensor.whole(grads[0]);
    const at::Tensor grad_rows = grad_y.reshape({-1, grad_y.size(-1)});
    const at::Tensor x = held->again ? held->again().reshape(grad_rows.sizes()) : held->x;
    held->again = {};
    held->x.reset();
    const at::Tensor grad_x = held->experts->apply_backward(held->batch, grad_rows, x, held->saved);
    held->saved = {};
    return {tensor.sum(grad_x.view(grad_y.sizes())), {}};
  }
};

at::Tensor wide(const at::Tensor& x) {
  return x.to(ops::accumulate_type(x));
}

at::Tensor rows_in(const at::Tensor& x, const parallel::IndexRange& range) {
  return x.narrow(0, range.begin, range.count());
}

/// Places `rows` at `range` of a tensor with `count` rows; all other rows are 0.
at::Tensor among(const at::Tensor& rows, const parallel::IndexRange& range, std::int64_t count) {
  if (range.count() == count) return rows;
  std::vector<std::int64_t> shape(rows.sizes().begin(), rows.sizes().end());
  shape.front() = count;
  const at::Tensor all = at::zeros(shape, rows.options());
  rows_in(all, range).copy_(rows);
  return all;
}

at::Tensor scaled(const at::Tensor& rows, const at::Tensor& column) {
  at::Tensor result = at::empty_like(rows);
  return at::mul_out(result, rows, column);
}

}  // namespace

Experts::Experts(parallel::ParamRegistry& registry, const LayerContext& context, std::int64_t layer,
                 const std::string& prefix)
    : registry_(registry),
      context_(context),
      layer_(layer),
      activation_(ops::find_activation(context.config.activation)),
      score_(context.config.moe.router_score == "sigmoid" ? ops::RouterScore::sigmoid
                                                          : ops::RouterScore::softmax) {
  const ModelConfig& c = context.config;
  const MoeConfig& moe = c.moe;
  const auto declare = [&](const char* name, std::vector<std::int64_t> shape, int split_dim,
                           bool fused = false) {
    parallel::ParamSpec spec{
        prefix + name, std::move(shape), {parallel::InitDistribution::Kind::normal}};
    if (split_dim >= 0) spec.split = parallel::DimSplit{split_dim};
    spec.of_experts = spec.shape.size() > 2;
    spec.partial = split_dim < 0;
    spec.fuse_with_previous = fused;
    spec.frozen = context.lora.on();
    return registry.declare(std::move(spec));
  };
  const std::int64_t width = moe.moe_intermediate_size;
  router_ = declare("mlp.gate.weight", {moe.num_experts, c.hidden_size}, -1);
  if (moe.has_bias()) {
    parallel::ParamSpec spec{prefix + "mlp.gate.e_score_correction_bias", {moe.num_experts}};
    spec.init = {parallel::InitDistribution::Kind::zeros};
    spec.decay = false;
    spec.partial = true;
    spec.sign_rate = moe.router_bias_rate;
    spec.frozen = context.lora.on();
    bias_ = registry.declare(std::move(spec));
  }
  gate_up_ = declare("mlp.experts.gate_up_proj", {moe.num_experts, 2, width, c.hidden_size}, 2);
  down_ = declare("mlp.experts.down_proj", {moe.num_experts, c.hidden_size, width}, 2);
  if (moe.num_shared_experts == 0) return;
  const std::int64_t shared = moe.shared_width();
  shared_gate_up_ = {declare("mlp.shared_experts.gate_proj.weight", {shared, c.hidden_size}, 0), 2};
  declare("mlp.shared_experts.up_proj.weight", {shared, c.hidden_size}, 0, /*fused=*/true);
  shared_down_ = {declare("mlp.shared_experts.down_proj.weight", {c.hidden_size, shared}, 1)};
}

at::Tensor Experts::forward(const parallel::Microbatch& batch, const at::Tensor& x,
                            const RecomputeFn& again) const {
  const auto held = c10::make_intrusive<SavedExperts>();
  held->experts = this;
  held->batch = batch;
  held->again = again;
  return ExpertsFunction::apply(x, held);
}

at::Tensor Experts::gate_up_weight() const {
  return registry_.weight(gate_up_).flatten(1, 2);
}

at::Tensor Experts::bias() const {
  return bias_ ? wide(registry_.weight(*bias_)) : at::Tensor();
}

at::Tensor Experts::scores_of(const at::Tensor& x) const {
  return ops::router_scores(wide(x).mm(wide(registry_.weight(router_)).t()), score_);
}

std::shared_ptr<const parallel::Route> Experts::route(const parallel::Microbatch& batch,
                                                      const at::Tensor& experts) const {
  if (batch.routes)
    if (auto known = batch.routes->take(layer_)) return known;
  const auto [order, bounds] = ops::order_by_expert(experts, context_.config.moe.num_experts);
  auto made = std::make_shared<const parallel::Route>(
      parallel::Route{order, parallel::RowExchange(context_.experts, bounds)});
  if (batch.routes) batch.routes->keep(layer_, made);
  return made;
}

at::Tensor Experts::apply(const parallel::Microbatch& batch, const at::Tensor& x,
                          Saved& saved) const {
  const MoeConfig& moe = context_.config.moe;
  const std::int64_t k = moe.num_experts_per_tok;
  saved.scores = scores_of(x);
  const ops::Routing routing = ops::pick_experts(saved.scores, bias(), k, moe.norm_topk_prob);
  saved.experts = routing.experts;
  const parallel::IndexRange own = context_.experts.sent(x.size(0));
  saved.route = route(batch, rows_in(routing.experts, own));
  const auto& [order, exchange] = *saved.route;
  parallel::PendingRows inputs =
      exchange.send(ops::to_rows(rows_in(x, own), order, k), "expert inputs");
  parallel::PendingRows gates =
      exchange.send(rows_in(routing.gates, own).flatten().index_select(0, order), "expert gates");
  if (shared_gate_up_)
    saved.shared_gate_up = ops::product(x, registry_.weight(*shared_gate_up_).t());
  const at::Tensor rows = inputs.wait();
  if (exchange.moves() && needs_input_for_gradients()) saved.inputs = rows;
  saved.gates = gates.wait();
  saved.gate_up = ops::grouped_product(rows, gate_up_weight(), exchange.bounds(), context_.path);
  const at::Tensor hidden =
      ops::gated_forward(saved.gate_up, activation_, context_.path).mul_(saved.gates.unsqueeze(1));
  parallel::PendingRows outputs = exchange.give_back(
      ops::grouped_product(hidden, registry_.weight(down_), exchange.bounds(), context_.path),
      "expert outputs");
  at::Tensor of_shared;
  if (shared_gate_up_)
    of_shared = ops::product(ops::gated_forward(saved.shared_gate_up, activation_, context_.path),
                             registry_.weight(shared_down_).t());
  const at::Tensor y = among(ops::from_rows(outputs.wait(), order, k), own, x.size(0));
  return of_shared.defined() ? of_shared.add_(y) : y;
}

at::Tensor Experts::router_grad(const parallel::Microbatch& batch, const at::Tensor& grad_gates,
                                const Saved& saved) const {
  const MoeConfig& moe = context_.config.moe;
  at::Tensor direct;
  if (batch.training && context_.tensor.rank() == 0)
    direct = balance_router(moe, batch, saved.scores, saved.experts, context_.context, layer_,
                            *context_.statistics);
  if (bias_ && registry_.trained({*bias_})) give_bias(batch, saved);
  return ops::router_backward(grad_gates, direct, saved.scores, saved.experts, score_,
                              moe.norm_topk_prob);
}

at::Tensor Experts::apply_backward(const parallel::Microbatch& batch, const at::Tensor& grad_y,
                                   const at::Tensor& x, const Saved& saved) const {
  const MoeConfig& moe = context_.config.moe;
  const std::int64_t k = moe.num_experts_per_tok;
  const auto& [order, exchange] = *saved.route;
  const ops::ExpertBounds& bounds = exchange.bounds();
  const parallel::IndexRange own = context_.experts.sent(grad_y.size(0));
  const at::Tensor own_grad = rows_in(grad_y, own);
  parallel::PendingRows grads =
      exchange.send(ops::to_rows(own_grad, order, k), "expert output gradients");
  at::Tensor grad_x;
  if (shared_gate_up_) grad_x = shared_backward(grad_y, x, saved);
  const at::Tensor grad_rows = grads.wait();
  const at::Tensor gate = saved.gates.unsqueeze(1);
  // The gradient of the gate needs only values that backward has anyway.
  const auto input_grad = [&](const at::Tensor& rows, const at::Tensor& weights) {
    const OperationMark mark(StepWork::matmul_dx);
    return ops::grouped_product(rows, weights.transpose(1, 2), bounds, context_.path);
  };
  const at::Tensor grad_gated = input_grad(grad_rows, registry_.weight(down_));
  at::Tensor hidden;
  const at::Tensor grad_gate_up = ops::gated_backward(scaled(grad_gated, gate), saved.gate_up,
                                                      activation_, context_.path, &hidden);
  const at::Tensor grad_gate_rows = wide(grad_gated).mul(hidden).sum(1);
  // If rows stay on this rank, a deferred weight gradient keeps one row per token only.
  const auto rows_again = [order = order, k](const at::Tensor& tokens) {
    return [tokens, order, k] { return ops::to_rows(tokens, order, k); };
  };
  const auto here = [](const at::Tensor& rows) { return [rows] { return rows; }; };
  using Make = std::function<at::Tensor()>;
  const bool moves = exchange.moves();
  give_grouped(down_, bounds, moves ? Make(here(grad_rows)) : Make(rows_again(own_grad)),
               here(scaled(hidden, gate)));
  parallel::PendingRows input_grads =
      exchange.give_back(input_grad(grad_gate_up, gate_up_weight()), "expert input gradients");
  parallel::PendingRows gate_grads = exchange.give_back(grad_gate_rows, "expert gate gradients");
  if (needs_input_for_gradients())
    give_grouped(gate_up_, bounds, here(grad_gate_up),
                 moves ? Make(here(saved.inputs)) : Make(rows_again(rows_in(x, own))));

  const at::Tensor of_rows =
      among(ops::from_rows(input_grads.wait(), order, k), own, grad_y.size(0));
  grad_x = grad_x.defined() ? grad_x.add_(of_rows) : of_rows;
  const at::Tensor by_row = gate_grads.wait();
  const at::Tensor grad_gates = at::empty_like(by_row).index_copy_(0, order, by_row);
  const at::Tensor grad_logits =
      router_grad(batch, among(grad_gates.view({own.count(), k}), own, grad_y.size(0)), saved);
  grad_x.add_(grad_logits.mm(wide(registry_.weight(router_))));
  if (needs_input_for_gradients()) {
    registry_.run_or_defer([this, x, grad_logits] {
      registry_.add_gradient_of_linear({router_}, wide(x), grad_logits);
    });
  }
  return grad_x;
}

at::Tensor Experts::shared_backward(const at::Tensor& grad_y, const at::Tensor& x,
                                    const Saved& saved) const {
  at::Tensor hidden;
  const at::Tensor of_shared =
      ops::gated_backward(ops::product(grad_y, registry_.weight(shared_down_)),
                          saved.shared_gate_up, activation_, context_.path, &hidden);
  give(shared_down_, hidden, grad_y);
  give(*shared_gate_up_, x, of_shared);
  return ops::product(of_shared, registry_.weight(*shared_gate_up_));
}

void Experts::give(parallel::WeightRef weight, const at::Tensor& x,
                   const at::Tensor& grad_y) const {
  if (!registry_.trained(weight)) return;
  registry_.run_or_defer(
      [this, weight, x, grad_y] { registry_.add_gradient_of_linear(weight, x, grad_y); });
}

void Experts::give_bias(const parallel::Microbatch& batch, const Saved& saved) const {
  const std::int64_t num_experts = context_.config.moe.num_experts;
  at::Tensor excess = at::zeros({num_experts}, saved.scores.options().dtype(at::kDouble));
  if (batch.training && context_.tensor.rank() == 0) {
    const at::Tensor counts = assignments(batch, saved.experts, num_experts);
    excess = counts * static_cast<double>(num_experts) - counts.sum();
  }
  registry_.run_or_defer([this, excess] { registry_.add_gradient({*bias_}, excess); });
}

void Experts::give_grouped(parallel::ParamId weight, const ops::ExpertBounds& bounds,
                           std::function<at::Tensor()> of_gradient,
                           std::function<at::Tensor()> of_input) const {
  if (!registry_.trained({weight})) return;
  registry_.run_or_defer(
      [this, weight, bounds, of_gradient = std::move(of_gradient), of_input = std::move(of_input)] {
        const at::NoGradGuard no_grad;
        const at::Tensor sums = registry_.master_grad(weight);
        ops::add_grouped_outer(of_gradient(), of_input(), bounds,
                               sums.dim() == 4 ? sums.flatten(1, 2) : sums, context_.path);
        registry_.gradient_added({weight});
      });
}

at::Tensor Experts::forward_cached(const at::Tensor& x) const {
  const MoeConfig& moe = context_.config.moe;
  const std::int64_t k = moe.num_experts_per_tok;
  const ops::Path path = context_.path;
  const at::Tensor logits = ops::inference_linear(wide(x), wide(registry_.weight(router_)), path);
  const ops::Routing routing =
      ops::pick_experts(ops::router_scores(logits, score_), bias(), k, moe.norm_topk_prob);
  const auto [order, bounds] = ops::sort_by_expert(routing.experts, moe.num_experts);
  const at::Tensor rows = ops::to_rows(x, order, k);
  const at::Tensor gate = routing.gates.flatten().index_select(0, order).unsqueeze(1);
  const Int8Weights& int8 = context_.int8;
  const at::Tensor out = at::empty_like(rows);
  for (std::size_t expert = 0; expert + 1 < bounds.size(); ++expert) {
    const std::int64_t first = bounds[expert];
    const std::int64_t count = bounds[expert + 1] - first;
    if (count == 0) continue;
    const auto weight = static_cast<std::int64_t>(expert);
    const at::Tensor gate_up =
        int8.expert_product(rows.narrow(0, first, count), registry_, gate_up_, weight, path);
    const at::Tensor hidden =
        ops::gated_forward(gate_up, activation_, path).mul_(gate.narrow(0, first, count));
    out.narrow(0, first, count).copy_(int8.expert_product(hidden, registry_, down_, weight, path));
  }
  at::Tensor y = ops::from_rows(out, order, k);
  if (!shared_gate_up_) return y;
  const at::Tensor gate_up = int8.product(x, registry_, *shared_gate_up_, path);
  return y.add_(
      int8.product(ops::gated_forward(gate_up, activation_, path), registry_, shared_down_, path));
}

std::vector<parallel::WeightRef> Experts::linears() const {
  std::vector<parallel::WeightRef> refs{{gate_up_}, {down_}};
  if (shared_gate_up_) refs.insert(refs.end(), {*shared_gate_up_, shared_down_});
  return refs;
}

}  // namespace trireme::model
