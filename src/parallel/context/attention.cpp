#include "parallel/context/attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "core/error.hpp"
#include "parallel/context/forms.hpp"

namespace trireme::parallel {
namespace {

using context::ContextCall;
using context::ContextResult;
using context::ContextSaved;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct SavedCall : torch::CustomClassHolder {
  explicit SavedCall(ContextCall given) : call(std::move(given)) {}

  ContextCall call;
};

struct AlgorithmRow {
  ContextResult (*forward)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const ContextCall& call);
  ops::AttentionGrads (*backward)(const at::Tensor& grad_out, const ContextSaved& saved,
                                  const ContextCall& call);
};

constexpr std::array<AlgorithmRow, kContextForms.size()> kForms{{
    {context::ring_forward, context::ring_backward},
    {context::all_gather_forward, context::all_gather_backward},
    {context::ulysses_forward, context::ulysses_backward},
}};  // indexed by ContextAlgorithm

const AlgorithmRow& row_of(const ContextCall& call) {
  return kForms.at(static_cast<std::size_t>(call.form));
}

struct ContextFunction : torch::autograd::Function<ContextFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const ContextCall& call) {
    const ContextResult result = row_of(call).forward(q, k, v, call);
    const ContextSaved& saved = result.saved;
    ctx->save_for_backward({saved.q, saved.k, saved.v, saved.attended.out, saved.attended.lse});
    ctx->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<SavedCall>(call));
    return result.out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const at::NoGradGuard no_grad;
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const SavedCall&>(*holder).call;
    const auto result =
        row_of(call).backward(grads[0], {saved[0], saved[1], saved[2], {saved[3], saved[4]}}, call);
    return {result.q, result.k, result.v, {}};
  }
};

std::int64_t num_positions(const ops::RowPositions& positions) {
  std::int64_t count = 0;
  for (const ops::TokenRange& range : positions.front()) count += range.length;
  return count;
}

void check(const at::Tensor& q, const at::Tensor& k, const ContextCall& call) {
  const auto& positions = call.setup.positions;
  if (positions.size() != static_cast<std::size_t>(call.group->size()))
    fail(ErrorKind::internal, "context_attention: positions of {} ranks, group {} has {}",
         positions.size(), call.group->name(), call.group->size());
  for (std::size_t rank = 0; rank < positions.size(); ++rank) {
    const bool fits = static_cast<std::int64_t>(positions[rank].size()) == q.size(0) &&
                      q.size(0) > 0 && num_positions(positions[rank]) == q.size(2);
    if (!fits || k.size(2) != q.size(2))
      fail(
          ErrorKind::internal,
          "context_attention: q {}, k {} and the positions of rank {} must have equal numbers of positions",
          q.sizes(), k.sizes(), rank);
  }
}

}  // namespace

namespace context {

ops::AttentionSetup ContextCall::attention(ops::RowPositions queries, ops::RowPositions keys,
                                           bool wide) const {
  ops::AttentionSetup part = setup.rows;
  part.query_positions = std::move(queries);
  part.key_positions = std::move(keys);
  part.wide = wide;
  return part;
}

ops::RowPositions all_positions(const ContextSetup& setup) {
  ops::RowPositions all(setup.positions.front().size());
  for (const ops::RowPositions& rank : setup.positions) {
    for (std::size_t row = 0; row < all.size(); ++row)
      all[row].insert(all[row].end(), rank[row].begin(), rank[row].end());
  }
  return all;
}

}  // namespace context

at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ContextSetup& setup, comm::Communicator& group,
                             ContextAlgorithm form, ops::Path path) {
  const ContextCall call{setup, &group, form, path, k.size(1)};
  check(q, k, call);
  if (group.size() == 1) {
    ops::RowPositions positions = call.own_positions();
    // Whole rows need no positions. Only without positions can attention use a GPU library.
    if (positions == ops::RowPositions(positions.size(), {{0, q.size(2)}})) positions.clear();
    return ops::attention(q, k, v, call.attention(positions, positions, false), path);
  }
  return ContextFunction::apply(q, k, v, call);
}

at::Tensor select_positions(const at::Tensor& x, const ops::RowPositions& positions) {
  std::vector<at::Tensor> rows;
  for (std::size_t row = 0; row < positions.size(); ++row) {
    std::vector<at::Tensor> parts;
    for (const ops::TokenRange& range : positions[row])
      parts.push_back(x[static_cast<std::int64_t>(row)].narrow(0, range.first, range.length));
    rows.push_back(at::cat(parts));
  }
  return at::stack(rows);
}

}  // namespace trireme::parallel
