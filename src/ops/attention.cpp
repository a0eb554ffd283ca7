#include "ops/attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/operation_record.hpp"
#include "ops/attention/memo.hpp"
#include "ops/operations.hpp"

namespace trireme::ops {
namespace {

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionSetup& setup) {
  const auto fit = q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() &&
                   q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.size(1) > 0 &&
                   q.size(1) % k.size(1) == 0 && q.scalar_type() == k.scalar_type() &&
                   q.scalar_type() == v.scalar_type();
  if (!fit) {
    fail(
        ErrorKind::internal,
        "attention: q {}, k {}, v {}: must be [B, H, Tq, D] and twice [B, Hk, Tk, D], Hk a divisor of H, of one dtype",
        q.sizes(), k.sizes(), v.sizes());
  }
  check_attention(setup, q.size(0), q.size(2), k.size(2));
}

/// An implementation for one device and dtype, if `fits` accepts the shapes.
struct AttentionRow {
  at::DeviceType device;
  at::ScalarType dtype;
  bool (*fits)(const at::Tensor& q, const AttentionSetup& setup);
  AttentionForward* forward;
  AttentionBackward* backward;
};

bool any_shape(const at::Tensor& /*q*/, const AttentionSetup& /*setup*/) {
  return true;
}

/// The first row that fits is used; if none fits, the plain path.
constexpr std::array<AttentionRow, 7> kAttention{{
    {at::kCPU, at::kBFloat16, tiles_apply, tiles_forward, tiles_backward},
    {at::kCPU, at::kBFloat16, fp32_tiles_apply, fp32_tiles_forward, fp32_tiles_backward},
    {at::kCPU, at::kBFloat16, any_shape, aten_forward, aten_backward},
    {at::kCPU, at::kFloat, fp32_tiles_apply, fp32_tiles_forward, fp32_tiles_backward},
    {at::kCPU, at::kFloat, any_shape, aten_forward, aten_backward},
    {at::kCUDA, at::kBFloat16, flash_applies, flash_forward, flash_backward},
    {at::kCUDA, at::kHalf, flash_applies, flash_forward, flash_backward},
}};

constexpr AttentionRow kPlain{at::kCPU, at::kDouble, any_shape, plain_forward, plain_backward};

/// Warns once that flash attention does not accept q on this GPU.
void warn_of_cost(const at::Tensor& q) {
  static std::once_flag warned;
  std::call_once(warned, [&] {
    constexpr std::int64_t kMiB = 1 << 20;
    log::warn(formatted(
        "attention: flash attention needs a GPU of compute capability 8.0 or later and a head_dim "
        "that is a multiple of 8 and at most 256. The head_dim is {}. Attention over packed "
        "documents now reads a mask of {} MiB in every layer and computes the scores of all pairs "
        "of tokens, also of different documents. Choose another model.head_dim to avoid the cost",
        q.size(3), q.size(0) * q.size(2) * q.size(2) / kMiB + 1));
  });
}

/// Warns once that a soft-cap excludes the kernels of the GPU.
void warn_of_softcap(const at::Tensor& q) {
  static std::once_flag warned;
  std::call_once(warned, [&] {
    constexpr std::int64_t kMiB = 1 << 20;
    log::warn(formatted(
        "attention: no kernel has a soft-cap (model.attention_softcap). Attention computes the "
        "scores of all pairs of tokens, {} MiB in every layer. Train shorter sequences to reduce "
        "the cost",
        4 * q.size(0) * q.size(1) * q.size(2) * q.size(2) / kMiB + 1));
  });
}

/// Returns the implementation for q. Never warns.
const AttentionRow& look_up_attention(Path path, const at::Tensor& q, const AttentionSetup& setup) {
  if (path_of(Operation::attention, path) == Path::plain || setup.softcap > 0) return kPlain;
  const auto* const found =
      std::find_if(kAttention.begin(), kAttention.end(), [&](const AttentionRow& row) {
        return row.device == q.device().type() && row.dtype == q.scalar_type() &&
               row.fits(q, setup);
      });
  return found != kAttention.end() ? *found : kPlain;
}

/// Like look_up_attention(), but warns once if a GPU has no kernel.
const AttentionRow& find_attention(Path path, const at::Tensor& q, const AttentionSetup& setup) {
  const AttentionRow& found = look_up_attention(path, q, setup);
  if (!q.is_cuda()) return found;
  if (setup.softcap > 0) {
    warn_of_softcap(q);
  } else if (&found == &kPlain && q.element_size() == 2 &&
             path_of(Operation::attention, path) != Path::plain) {
    warn_of_cost(q);
  }
  return found;
}

/// Returns true if the library only needs to know whether attention is causal.
bool one_document_a_row(const AttentionSetup& setup) {
  return setup.whole_rows() && setup.mask.is_simple() &&
         std::all_of(setup.bounds.begin(), setup.bounds.end(),
                     [](const auto& edges) { return edges.size() == 2; });
}

/// Returns true if ATen's own attention with its autograd is the fast path: on a GPU, for whole
/// rows, and for calls that no kernel of the table accepts.
bool takes_library(const at::Tensor& q, const at::Tensor& k, const AttentionSetup& setup) {
  if (!q.device().is_cuda() || setup.softcap > 0) return false;
  if (one_document_a_row(setup)) return true;
  if (&find_attention(Path::fast, q, setup) != &kPlain) return false;
  return setup.whole_rows() ||
         !has_queries_without_keys(*planned_attention(setup, q.size(0), q.size(2), k.size(2)));
}

constexpr int kForwardProducts = 2;   // scores and outputs
constexpr int kBackwardProducts = 5;  // scores again, and gradients of v, probabilities, q and k

/// Counts the products of attention. Only pairs of a query and a key that it sees count.
void count_attention(const at::Tensor& q, const at::Tensor& k, const AttentionSetup& setup,
                     int products) {
  if (operation_record == nullptr) return;
  double pairs = 0;
  for (const DocumentPlan& document : *planned_attention(setup, q.size(0), q.size(2), k.size(2))) {
    double own = 0;
    for (const QueryPart& part : document.queries) own += static_cast<double>(part.num_pairs());
    pairs += document.row < 0 ? own * static_cast<double>(q.size(0)) : own;
  }
  operation_record->count(2.0 * products * pairs * static_cast<double>(q.size(1) * q.size(3)));
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct SavedSetup : torch::CustomClassHolder {
  SavedSetup(AttentionSetup given, Path chosen) : setup(std::move(given)), path(chosen) {}

  AttentionSetup setup;
  Path path;
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionSetup& setup, Path path) {
    auto [out, lse] = attention_forward(q, k, v, setup, path);
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["setup"] =
        c10::IValue::make_capsule(c10::make_intrusive<SavedSetup>(setup, path));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["setup"].toCapsule();
    const auto& call = static_cast<const SavedSetup&>(*holder);
    auto out = attention_backward(grads[0], saved[0], saved[1], saved[2], {saved[3], saved[4]},
                                  call.setup, call.path);
    return {out.q, out.k, out.v, {}, {}};
  }
};

}  // namespace

AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionSetup& setup, Path path) {
  check_shapes(q, k, v, setup);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::attention_forward);
  count_attention(q, k, setup, kForwardProducts);
  return find_attention(path, q, setup).forward(q, k, v, setup);
}

AttentionGrads attention_backward(const at::Tensor& grad_out, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOutput& forward, const AttentionSetup& setup,
                                  Path path) {
  check_shapes(q, k, v, setup);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::attention_backward);
  count_attention(q, k, setup, kBackwardProducts);
  const AttentionOutput narrow{forward.out.to(q.scalar_type()), forward.lse};
  return find_attention(path, q, setup)
      .backward(grad_out.to(q.scalar_type()), q, k, v, narrow, setup);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSetup& setup, Path path) {
  check_shapes(q, k, v, setup);
  if (path_of(Operation::attention, path) == Path::fast && takes_library(q, k, setup)) {
    const OperationMark mark(StepWork::attention_forward);
    // ATen's backward pass calls no function of this file, so its products are counted here.
    const bool trains = at::GradMode::is_enabled() && q.requires_grad();
    count_attention(q, k, setup, kForwardProducts + (trains ? kBackwardProducts : 0));
    return library_attention(q, k, v, setup);
  }
  return AttentionFunction::apply(q, k, v, setup, path);
}

bool has_varlen_kernel(const at::Tensor& q, Path path) {
  return look_up_attention(path, q, {}).forward == flash_forward;
}

at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup) {
  check_shapes(q, k, v, setup);
  if (one_document_a_row(setup)) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, setup.mask.causal, setup.scale,
                                            /*enable_gqa=*/true);
  }
  const auto length = setup.query_positions.empty() ? q.size(2) : k.size(2);
  const auto mask = attention_mask(setup, q.size(0), length, q.device()).unsqueeze(1);
  return at::scaled_dot_product_attention(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)),
                                          mask, 0.0, false, setup.scale);
}

}  // namespace trireme::ops
