#include "bench/aten_recorder.hpp"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace trireme::bench {
namespace {

// The callbacks are plain functions, so their state is per thread.
thread_local WorkByName* target = nullptr;
thread_local int depth_in_counted = 0;  // operations inside a counted one belong to it

/// Operations without a composite kernel in the dispatcher that call others all the same.
constexpr std::array<std::string_view, 13> kComposites{
    "aten::_to_copy",       "aten::clone",     "aten::zeros",      "aten::zeros_like",
    "aten::ones",           "aten::ones_like", "aten::full",       "aten::full_like",
    "aten::new_zeros",      "aten::stack",     "aten::contiguous", "aten::masked_fill",
    "aten::constant_pad_nd"};

/// Operations that launch nothing although their schema names no alias. min and max belong to the
/// check of positions, which runs only on a CPU.
constexpr std::array<std::string_view, 6> kFree{"aten::_unsafe_view", "aten::resize_", "aten::set_",
                                                "aten::result_type",  "aten::min",     "aten::max"};

/// The first argument is a table of which a call reads as much as it returns.
constexpr std::array<std::string_view, 4> kSelections{"aten::index_select", "aten::gather",
                                                      "aten::embedding", "aten::index"};

/// The first argument is written where the last tensor argument says.
constexpr std::array<std::string_view, 4> kScatters{"aten::scatter_add_", "aten::index_copy_",
                                                    "aten::index_add_", "aten::index_put_"};

/// The first argument is only written.
constexpr std::array<std::string_view, 3> kFills{"aten::copy_", "aten::fill_", "aten::zero_"};

/// Kernels of one call on a GPU, if more than one: sort, segments and sums of embedding_backward in
/// aten/src/ATen/native/cuda/Embedding.cu.
constexpr double kEmbeddingBackwardLaunches = 9;

template <class Names>
bool is_in(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

double bytes_of(const at::Tensor& x) {
  if (!x.defined()) return 0;
  double elements = x.numel() == 0 ? 0 : 1;
  for (std::int64_t d = 0; d < x.dim(); ++d)
    if (x.stride(d) != 0) elements *= static_cast<double>(x.size(d));
  return elements * static_cast<double>(x.element_size());
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> tensors;
  if (value.isOptionalTensorList())
    for (const std::optional<at::Tensor>& one : value.toOptionalTensorVector())
      if (one) tensors.push_back(*one);
  return tensors;
}

double bytes_of(const c10::IValue& value) {
  double bytes = 0;
  for (const at::Tensor& one : tensors_of(value)) bytes += bytes_of(one);
  return bytes;
}

enum class Kind { free, wait, composite, counted };

Kind kind_of(const std::string& name, const c10::FunctionSchema& schema,
             const c10::OperatorHandle& handle) {
  if (name == "aten::_local_scalar_dense") return Kind::wait;
  if (name.starts_with("aten::empty") || name.starts_with("aten::new_empty") || is_in(kFree, name))
    return Kind::free;
  if (is_in(kComposites, name)) return Kind::composite;
  if (handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
    return Kind::composite;
  const auto& returns = schema.returns();
  const bool is_view =
      !returns.empty() && returns[0].alias_info() != nullptr && !returns[0].alias_info()->isWrite();
  return is_view ? Kind::free : Kind::counted;
}

/// Multiply-adds of a matrix product count twice.
double flops_of(const std::string& name, const std::vector<c10::IValue>& inputs) {
  const bool adds = name == "aten::addmm" || name == "aten::addmm_";
  if (name != "aten::mm" && name != "aten::bmm" && !adds) return 0;
  const at::Tensor& a = inputs[adds ? 1 : 0].toTensor();
  const at::Tensor& b = inputs[adds ? 2 : 1].toTensor();
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

struct Call : at::ObserverContext {
  bool counted = false;
  bool inside = false;  // belongs to a counted operation
  std::string name;
  Work work;
  bool reads_output_size = false;  // the table of a selection
};

/// Returns the bytes that a call reads and writes in its arguments.
double argument_bytes(const std::string& name, const c10::FunctionSchema& schema,
                      const std::vector<c10::IValue>& inputs) {
  double bytes = 0;
  for (std::size_t i = 0; i < inputs.size() && i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    const double size = bytes_of(inputs[i]);
    if (i == 0 && is_in(kSelections, name)) continue;
    if (i == 0 && is_in(kScatters, name)) {
      const double items = name == "aten::index_put_" ? 2 : 3;
      bytes += 2 * bytes_of(inputs[static_cast<std::size_t>(items)]);
      continue;
    }
    const bool only_writes = argument.is_out() || (i == 0 && is_in(kFills, name));
    bytes += size * (writes && !only_writes ? 2 : 1);
  }
  return bytes;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto call = std::make_unique<Call>();
  if (target == nullptr) return call;
  if (depth_in_counted > 0) {
    ++depth_in_counted;
    call->inside = true;
    return call;
  }
  const auto identity = function.operator_name();
  if (!identity) return call;
  const auto handle = c10::Dispatcher::singleton().findSchema(*identity);
  if (!handle) return call;
  const c10::FunctionSchema& schema = handle->schema();
  call->name = function.name();
  const Kind kind = kind_of(call->name, schema, *handle);
  if (kind == Kind::composite) return call;
  const std::vector<c10::IValue> inputs(function.inputs().begin(), function.inputs().end());
  call->counted = true;
  depth_in_counted = 1;
  if (kind == Kind::wait) {
    call->work.host_waits = 1;
  } else if (kind == Kind::counted) {
    call->work.launches =
        call->name == "aten::embedding_dense_backward" ? kEmbeddingBackwardLaunches : 1;
    call->work.bytes = argument_bytes(call->name, schema, inputs);
    call->work.flops = flops_of(call->name, inputs);
    call->reads_output_size = is_in(kSelections, call->name);
  }
  return call;
}

/// Adds the results that are no arguments of the call.
void end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* const call = static_cast<Call*>(context);
  if (call == nullptr || target == nullptr) return;
  if (call->inside) {
    --depth_in_counted;
    return;
  }
  if (!call->counted) return;
  depth_in_counted = 0;
  if (call->work.launches > 0) {
    const auto identity = function.operator_name();
    const auto handle = c10::Dispatcher::singleton().findSchema(*identity);
    const auto& returns = handle->schema().returns();
    for (std::size_t i = 0; i < function.outputs().size() && i < returns.size(); ++i) {
      if (returns[i].alias_info() != nullptr) continue;
      call->work.bytes += bytes_of(function.outputs()[i]) * (call->reads_output_size ? 2 : 1);
    }
  }
  if (call->work.flops > 0) call->work.product_bytes = call->work.bytes;
  (*target)[call->name] += call->work;
}

}  // namespace

AtenRecorder::AtenRecorder(WorkByName& work)
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  target = &work;
  depth_in_counted = 0;
}

AtenRecorder::~AtenRecorder() {
  at::removeCallback(handle_);
  target = nullptr;
}

}  // namespace trireme::bench
