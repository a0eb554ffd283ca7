#include "train/state/load_converted.hpp"

#include <ATen/ATen.h>

#include <span>
#include <vector>

#include "device/torch_bridge.hpp"

namespace trireme {
namespace {

/// A tensor that is saved in another dtype, with the buffer for its bytes before the conversion.
struct Conversion {
  at::Tensor saved;
  at::Tensor wanted;
};

at::Tensor flat_tensor(std::span<std::byte> bytes, DType dtype) {
  const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
  return at::from_blob(bytes.data(), {count}, at::TensorOptions(to_scalar_type(dtype)));
}

bool converts(DType from, DType to) {
  return from != to && at::isFloatingType(to_scalar_type(from)) &&
         at::isFloatingType(to_scalar_type(to));
}

}  // namespace

void load_converted(const Checkpoint& checkpoint, StateDict& state, Communicator& world) {
  StateDict read{state.tensors, {}, {}};
  std::vector<Conversion> conversions;
  for (StateTensor& tensor : read.tensors) {
    const auto found = checkpoint.manifest().tensors.find(tensor.name);
    if (found == checkpoint.manifest().tensors.end()) continue;  // load_tensors names it
    const DType dtype = found->second.dtype;
    if (!converts(dtype, tensor.dtype)) continue;
    const at::Tensor wanted = flat_tensor(tensor.bytes, tensor.dtype);
    const at::Tensor saved = at::empty(wanted.sizes(), at::TensorOptions(to_scalar_type(dtype)));
    tensor.dtype = dtype;
    tensor.bytes = {static_cast<std::byte*>(saved.mutable_data_ptr()), saved.nbytes()};
    conversions.push_back({saved, wanted});
  }
  load_tensors(checkpoint, read, world, {.may_ignore = {"optim/"}});
  for (Conversion& conversion : conversions) conversion.wanted.copy_(conversion.saved);
}

}  // namespace trireme
