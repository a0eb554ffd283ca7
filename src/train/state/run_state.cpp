#include "train/state/run_state.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "device/torch_bridge.hpp"
#include "parallel/collectives.hpp"

namespace trireme::train {
namespace {

/// A tensor that is saved in another dtype, with the buffer for its bytes before the conversion.
struct Conversion {
  at::Tensor saved;
  at::Tensor wanted;
};

at::Tensor flat_tensor(std::span<std::byte> bytes, DType dtype) {
  const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
  return at::from_blob(bytes.data(), {count}, at::TensorOptions(device::to_scalar_type(dtype)));
}

bool converts(DType from, DType to) {
  return from != to && at::isFloatingType(device::to_scalar_type(from)) &&
         at::isFloatingType(device::to_scalar_type(to));
}

}  // namespace

StateView::StateView(parallel::ParamRegistry& registry, StateOf of) : registry_(registry) {
  const std::vector<parallel::Unit>& all = registry.layout().units();
  std::vector<std::size_t> units;
  std::vector<at::Tensor> parts;
  for (std::size_t unit = 0; unit < all.size(); ++unit) {
    if (of != StateOf::all && all[unit].frozen != (of == StateOf::frozen)) continue;
    units.push_back(unit);
    parts.push_back(registry.master_part(unit));
  }
  add("param/", units, std::move(parts));
}

StateView::StateView(parallel::ParamRegistry& registry, optim::Optimizer& optimizer, StateOf of,
                     std::span<const optim::OptimizerSlot> more)
    : StateView(registry, of) {
  if (of == StateOf::frozen) return;
  const std::vector<std::size_t>& units = registry.layout().trainable_units();
  std::vector<optim::OptimizerSlot> slots = optimizer.slots();
  slots.insert(slots.end(), more.begin(), more.end());
  for (const optim::OptimizerSlot& slot : slots) {
    std::vector<at::Tensor> parts;
    for (const std::size_t unit : units) parts.push_back(registry.part_of(slot.flat, unit));
    add(formatted("optim/{}/", slot.name), units, std::move(parts));
  }
}

void StateView::add(const std::string& prefix, const std::vector<std::size_t>& units,
                    std::vector<at::Tensor> parts) {
  const parallel::UnitLayout& layout = registry_.layout();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t unit = units[i];
    const std::int64_t part_begin = layout.part(unit).begin;
    for (const parallel::ParamSpan& span : layout.spans(unit, layout.share(unit))) {
      const parallel::IndexRange& owned = layout.param(span.id).owned;
      // Split into the elements before, inside and after the range that this rank saves.
      const std::int64_t end = span.first + span.count;
      std::int64_t first = span.first;
      for (const auto& [border, owner] :
           {std::pair{owned.begin, false}, {owned.end, true}, {end, false}}) {
        const std::int64_t count = std::min(border, end) - first;
        if (count <= 0) continue;
        const std::int64_t begin = span.begin + first - span.first;
        add_piece(prefix + registry_.spec(span.id).name, {span.id, first, count, begin},
                  parts[i].narrow(0, begin - part_begin, count), owner);
        first += count;
      }
    }
  }
  parts_.push_back({units, std::move(parts)});
}

void StateView::add_piece(const std::string& name, const parallel::ParamSpan& piece,
                          const at::Tensor& values, bool owner) {
  at::Tensor host = values;
  if (!values.is_cpu()) {
    host = at::empty(values.sizes(), values.options().device(at::kCPU).pinned_memory(true));
    mirrors_.push_back({values, host});
  }
  parallel::Slice slice = registry_.layout().param(piece.id).slice;
  slice.flat_begin = piece.first;
  slice.flat_end = piece.first + piece.count;
  tensors_.push_back(
      {name, device::to_dtype(values.scalar_type()), registry_.spec(piece.id).shape, slice,
       std::span(static_cast<std::byte*>(host.mutable_data_ptr()), host.nbytes()), owner});
}

void StateView::stage() {
  for (Mirror& mirror : mirrors_) mirror.host.copy_(mirror.device);
}

void StateView::spread(const parallel::Mesh& mesh) {
  for (Mirror& mirror : mirrors_) mirror.device.copy_(mirror.host);
  for (const Parts& parts : parts_) {
    for (std::size_t i = 0; i < parts.units.size(); ++i) {
      const bool experts = registry_.layout().units()[parts.units[i]].experts;
      comm::Communicator& copies = mesh.replica_group(experts);
      if (copies.size() == 1) continue;
      const at::Tensor& part = parts.tensors[i];
      const std::int64_t size = part.numel() / copies.size();
      const at::Tensor whole = part.to(registry_.device());  // copies only if it is offloaded
      parallel::all_gather(copies, whole.narrow(0, size * copies.rank(), size), whole,
                           "loaded state")
          ->wait();
      if (part.device() != whole.device()) at::Tensor(part).copy_(whole);
    }
  }
}

void load_converted(const checkpoint::Checkpoint& checkpoint, checkpoint::StateDict& state,
                    comm::Communicator& world) {
  checkpoint::StateDict read{state.tensors, {}, {}};
  std::vector<Conversion> conversions;
  for (checkpoint::StateTensor& tensor : read.tensors) {
    const auto found = checkpoint.manifest().tensors.find(tensor.name);
    if (found == checkpoint.manifest().tensors.end()) continue;  // load_tensors names it
    const DType dtype = found->second.dtype;
    if (!converts(dtype, tensor.dtype)) continue;
    const at::Tensor wanted = flat_tensor(tensor.bytes, tensor.dtype);
    const at::Tensor saved =
        at::empty(wanted.sizes(), at::TensorOptions(device::to_scalar_type(dtype)));
    tensor.dtype = dtype;
    tensor.bytes = {static_cast<std::byte*>(saved.mutable_data_ptr()), saved.nbytes()};
    conversions.push_back({saved, wanted});
  }
  checkpoint::load_tensors(checkpoint, read, world, {.may_ignore = {"optim/", "critic/"}});
  for (Conversion& conversion : conversions) conversion.wanted.copy_(conversion.saved);
}

}  // namespace trireme::train
