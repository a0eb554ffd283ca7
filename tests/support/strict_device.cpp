#include "support/strict_device.hpp"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace trireme::testing {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

/// The waits of the current HostWaits object. Backward passes run on another thread.
struct Record {
  std::mutex mutex;
  bool on = false;
  std::vector<std::string> waits;
  int uploads = 0;
  int copies_beside = 0;   // on the second stream
  int kept_beside = 0;     // memory is kept for the first stream
  bool is_ordered = true;  // false between a copy on the second stream and the wait for it
};

Record& record() {
  static Record instance;
  return instance;
}

/// The stream of the calling thread: 0 or 1.
thread_local c10::StreamId current_stream = 0;

bool is_ordered() {
  const std::scoped_lock lock(record().mutex);
  return record().is_ordered;
}

void set_ordered() {
  const std::scoped_lock lock(record().mutex);
  record().is_ordered = true;
}

void add_wait(std::string what) {
  const std::scoped_lock lock(record().mutex);
  if (record().on) record().waits.push_back(std::move(what));
}

class HostMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    void* const data = std::malloc(std::max<std::size_t>(size, 1));
    return {data, data, &std::free, strict_device()};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

HostMemory& memory() {
  static HostMemory instance;
  return instance;
}

bool is_strict(const at::Tensor& x) {
  return x.defined() && x.device().is_privateuseone();
}

/// Returns a CPU tensor with the same memory.
at::Tensor on_cpu(const at::Tensor& x) {
  const std::size_t bytes = at::detail::computeStorageNbytes(x.sizes(), x.strides(), x.itemsize());
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             c10::DataPtr(x.data_ptr(), at::kCPU), c10::GetCPUAllocator(),
                             /*resizable=*/true);  // operations allocate their outputs so
  return at::empty({0}, at::TensorOptions().dtype(x.dtype()))
      .set_(storage, 0, x.sizes(), x.strides());
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> /*device*/, std::optional<bool> /*pin*/) {
  return at::detail::empty_strided_generic(size, stride, &memory(), kKeys,
                                           dtype.value_or(at::kFloat));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &memory(), kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor with_memory_of(const at::Tensor& cpu) {
  const at::Tensor result =
      empty_strided(cpu.sizes(), cpu.strides(), cpu.scalar_type(), {}, {}, {});
  on_cpu(result).copy_(cpu);
  return result;
}

void record_stream(at::Tensor& /*x*/, c10::Stream /*reader*/) {
  const std::scoped_lock lock(record().mutex);
  ++record().kept_beside;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (is_strict(from) && !is_strict(to)) {
    if (!non_blocking) add_wait("to host " + formatted("{}", from.sizes()));
  } else if (!is_strict(from) && !non_blocking) {
    add_wait("from host " + formatted("{}", from.sizes()));
  } else if (!is_strict(from)) {
    const std::scoped_lock lock(record().mutex);
    ++record().uploads;
    if (current_stream != 0) {
      ++record().copies_beside;
      record().is_ordered = false;
    }
  }
  (is_strict(to) ? on_cpu(to) : to).copy_(is_strict(from) ? on_cpu(from) : from);
  return to;
}

/// Returns true if a GPU's implementation needs values, or a size that depends on values.
bool waits(std::string_view name, const std::vector<c10::IValue>& inputs) {
  constexpr std::array<std::string_view, 10> kWaiting{"aten::_local_scalar_dense",
                                                      "aten::nonzero",
                                                      "aten::equal",
                                                      "aten::masked_select",
                                                      "aten::_unique2",
                                                      "aten::unique_dim",
                                                      "aten::bincount",
                                                      "aten::unique_consecutive",
                                                      "aten::repeat_interleave",
                                                      "aten::histc"};
  if (name == "aten::repeat_interleave")  // [values], output_size
    return inputs.size() < 2 || inputs[1].isNone();
  if (name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_") {
    // Boolean indices are converted by nonzero.
    return std::ranges::any_of(inputs[1].toListRef(), [](const c10::IValue& index) {
      return index.isTensor() && index.toTensor().defined() &&
             index.toTensor().scalar_type() == at::kBool;
    });
  }
  return std::ranges::find(kWaiting, name) != kWaiting.end();
}

/// Tensors of strict_device() and their CPU tensors during one operation.
class Aliases {
 public:
  c10::IValue to_cpu(const c10::IValue& value) {
    if (value.isTensor()) return alias(value.toTensor());
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(alias(each));
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const auto& each : value.toOptionalTensorVector())
        tensors.push_back(each ? std::optional(alias(*each)) : std::nullopt);
      return tensors;
    }
    if (value.isDevice() && value.toDevice().is_privateuseone()) return at::Device(at::kCPU);
    return value;
  }

  /// Gives resized outputs their new memory.
  void finish() {
    for (const auto& [original, cpu] : pairs_) {
      if (original.sizes() == cpu.sizes()) continue;
      original.unsafeGetTensorImpl()->shallow_copy_from(with_memory_of(cpu).getIntrusivePtr());
    }
  }

  c10::IValue from_cpu(const c10::IValue& value) const {
    if (value.isTensor()) return original(value.toTensor());
    if (!value.isTensorList()) return value;
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(original(each));
    return tensors;
  }

 private:
  at::Tensor alias(const at::Tensor& x) {
    if (!is_strict(x)) return x;
    return pairs_.emplace_back(x, on_cpu(x)).second;
  }

  at::Tensor original(const at::Tensor& cpu) const {
    if (!cpu.defined()) return cpu;
    for (const auto& [device, alias] : pairs_)
      if (alias.is_same(cpu)) return device;
    return with_memory_of(cpu);
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t num_inputs = op.schema().arguments().size();
  std::vector<c10::IValue> inputs(stack->end() - static_cast<std::ptrdiff_t>(num_inputs),
                                  stack->end());
  torch::jit::drop(*stack, num_inputs);
  const std::string& name = op.schema().name();
  if (waits(name, inputs)) add_wait(name);
  if (current_stream == 0 && !is_ordered()) add_wait(name + " before its copy");
  Aliases aliases;
  torch::jit::Stack own;
  for (const c10::IValue& input : inputs) own.push_back(aliases.to_cpu(input));
  {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
    op.callBoxed(&own);
  }
  aliases.finish();
  for (const c10::IValue& output : own) stack->push_back(aliases.from_cpu(output));
}

/// Two streams. Operations are complete when they return, but a GPU's would not be: the host waits
/// for an event.
struct TwoStreams final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  TwoStreams() = default;

  c10::Device exchangeDevice(c10::Device) const override { return strict_device(); }

  c10::Device getDevice() const override { return strict_device(); }

  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, strict_device(), current_stream);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, strict_device(), 1);
  }

  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }

  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = getStream(stream.device());
    current_stream = stream.id();
    return before;
  }

  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}

  void block(void*, const c10::Stream& reader) const override {
    if (reader.id() == 0) set_ordered();
  }

  bool queryEvent(void*) const override { return true; }

  void synchronizeEvent(void*) const override { add_wait("event"); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, TwoStreams);

/// Makes the device LibTorch's accelerator, which the autograd engine asks for.
struct Hooks final : at::PrivateUse1HooksInterface {
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }

  [[nodiscard]] bool isAvailable() const override { return true; }
};

const bool kRegistered = [] {
  static Hooks hooks;
  c10::register_privateuse1_backend("strict");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(at::native::view));
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("_copy_from", copy_from);
  m.impl("record_stream", record_stream);
  // ATen's implementation for all devices reads the offsets; the one for Hopper does not.
  m.impl("_grouped_mm", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace

at::Device strict_device() {
  TRIREME_ASSERT(kRegistered);
  return {c10::DeviceType::PrivateUse1, 0};
}

HostWaits::HostWaits() {
  const std::scoped_lock lock(record().mutex);
  TRIREME_ASSERT(!record().on);
  record().on = true;
  record().waits.clear();
  record().uploads = 0;
  record().copies_beside = 0;
  record().kept_beside = 0;
}

HostWaits::~HostWaits() {
  const std::scoped_lock lock(record().mutex);
  record().on = false;
}

std::vector<std::string> HostWaits::waits() const {
  const std::scoped_lock lock(record().mutex);
  return record().waits;
}

int HostWaits::copies_beside() const {
  const std::scoped_lock lock(record().mutex);
  TRIREME_ASSERT(record().kept_beside == record().copies_beside);
  return record().copies_beside;
}

int HostWaits::uploads() const {
  const std::scoped_lock lock(record().mutex);
  return record().uploads;
}

}  // namespace trireme::testing
