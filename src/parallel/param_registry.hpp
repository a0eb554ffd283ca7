#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/precision.hpp"
#include "parallel/param_spec.hpp"
#include "parallel/units/unit_grads.hpp"
#include "parallel/units/unit_layout.hpp"
#include "parallel/units/unit_weights.hpp"

namespace trireme::parallel {

/// Declares, stores and initializes all parameters, accumulates their gradients, and fires the
/// "ready" event when a gradient is complete.
///
/// Storage is one flat range per FSDP unit (a parameter group that is gathered and reduced
/// together), in id order. There are three such buffers: weights, master weights and master
/// gradients. If the dtypes are equal, the weights are also the master weights. The mesh's ZeRO
/// stage decides how much of each a rank stores; a rank always stores the part of each unit that it
/// updates. Frozen parameters have weights only. If all parameters are frozen, the model can only
/// run forward. Declare all parameters, then allocate once.
class ParamRegistry {
 public:
  /// Starts a new unit: parameters that are declared from now on belong to this unit. If no
  /// unit is begun, all parameters form one unit.
  void begin_unit(std::string name);

  /// Makes all parameters that are declared from now on frozen, even if their spec does not.
  void freeze() { freezes_ = true; }

  /// Declares a parameter. A repeated name is one more use of that parameter (tied weights).
  ParamId declare(ParamSpec spec);
  /// Allocates the storage; `mesh` must outlive this object.
  void allocate(const Mesh& mesh, device::ParamDTypes dtypes, at::Device device);
  void initialize(std::uint64_t seed);

  [[nodiscard]] std::size_t size() const { return specs_.size(); }

  [[nodiscard]] const ParamSpec& spec(ParamId id) const { return specs_[id]; }

  [[nodiscard]] bool trained(WeightRef ref) const { return !specs_[ref.first].frozen; }

  [[nodiscard]] const UnitLayout& layout() const { return layout_; }

  /// Returns the layout of a rank of the same stage at another position in the grids. Also works
  /// before allocate().
  [[nodiscard]] UnitLayout layout_at(const ShardGrid& grid, const std::optional<ShardGrid>& experts,
                                     std::int64_t persist) const {
    return {specs_, unit_starts_, unit_names_, grid, persist, experts};
  }

  [[nodiscard]] const Mesh& mesh() const { return *mesh_; }

  [[nodiscard]] std::size_t unit_of(ParamId id) const { return layout_.param(id).unit; }

  [[nodiscard]] device::ParamDTypes dtypes() const { return dtypes_; }

  [[nodiscard]] at::Device device() const { return device_; }

  /// Returns the weights with this rank's local shape, as a view of the whole unit.
  [[nodiscard]] at::Tensor weight(WeightRef ref);

  [[nodiscard]] at::Tensor weight(ParamId id) { return weight(WeightRef{id}); }

  /// Returns the master weights of a parameter. Only without ZeRO; see master_part().
  [[nodiscard]] at::Tensor main(ParamId id) const;

  /// Returns the tensor that backward adds the parameter's gradient to.
  [[nodiscard]] at::Tensor master_grad(ParamId id) { return view(grads_.whole(unit_of(id)), {id}); }

  /// Returns this rank's part of a unit's master weights, [layout().part(unit).count()]; for a
  /// frozen unit, its weights. grad_part() returns the gradients of this part; frozen units have
  /// none.
  [[nodiscard]] at::Tensor master_part(std::size_t unit) const;

  [[nodiscard]] at::Tensor grad_part(std::size_t unit) const { return grads_.part(unit); }

  /// Returns the gradients of a part on the device of its master weights: grad_part(), or with
  /// offload a copy in host memory.
  [[nodiscard]] at::Tensor update_grad(std::size_t unit) const;

  /// With offload, copies the final gradients to host memory; call it before an optimizer step.
  void fetch_grads();

  /// Returns this unit's part of a buffer of all trainable parts (from make_state()).
  [[nodiscard]] at::Tensor part_of(const at::Tensor& state, std::size_t unit) const;

  /// Returns the bytes of master weights; 0 if the weights are the master weights.
  [[nodiscard]] std::int64_t main_bytes() const {
    return main_.defined() ? static_cast<std::int64_t>(main_.nbytes()) : 0;
  }

  /// Returns zeros for every element this rank updates; in host memory with offload.
  [[nodiscard]] at::Tensor make_state() const;

  [[nodiscard]] UnitWeights& weights() { return weights_; }

  [[nodiscard]] UnitGrads& grads() { return grads_; }

  /// Collective under ZeRO. Copies master weights to the weights that the model computes with, on
  /// all ranks. Call it after setting any weights.
  void refresh_weights() { refresh(/*frozen_too=*/true); }

  /// Like refresh_weights(), but skips frozen weights. For the end of an update, which does not
  /// change them.
  void refresh_trainable() { refresh(/*frozen_too=*/false); }

  /// Starts an update with `num_backwards` backward passes: resets gradients and the counts of
  /// uses.
  void begin_update(int num_backwards);

  /// Defers weight gradients: if `list` is not null, run_or_defer() appends functions to `list`,
  /// and the caller runs them later. If `list` is null, weight gradients are added at once. The
  /// pipeline action W (deferred weight gradient) uses this.
  void collect_deferred_grads(std::vector<std::function<void()>>* list) { deferred_grads_ = list; }

  /// Runs `add` at once, or appends it to the list of collect_deferred_grads(). `add` calls the
  /// functions below.
  void run_or_defer(std::function<void()> add) {
    if (deferred_grads_ == nullptr) {
      add();
    } else {
      deferred_grads_->push_back(std::move(add));
    }
  }

  /// Adds a gradient with the shape of the weight to the master gradient. Then fires the ready
  /// event of each parameter that has received the gradients of all its uses. Only for trainable
  /// parameters.
  void add_gradient(WeightRef ref, const at::Tensor& grad);
  /// Like add_gradient(), for a linear y = x W^T; computes the gradient of W from x [.., in] and
  /// grad_y [.., out].
  void add_gradient_of_linear(WeightRef ref, const at::Tensor& x, const at::Tensor& grad_y);
  /// Like add_gradient(), but the caller has already accumulated the gradient into master_grad().
  void gradient_added(WeightRef ref);

  /// Turns the counts of uses off or on. While they are off, gradients are added, but no ready event
  /// fires: for a backward pass that a CUDA graph repeats. count_backward() counts each launch.
  void count_uses(bool on) { counts_uses_ = on; }

  /// Counts one backward pass that has added all its gradients, and fires the ready events of
  /// parameters that are complete, in backward order.
  void count_backward();

  /// Sets the callback that runs when a parameter's gradient is complete, in backward order. It
  /// runs once per update, or once per backward pass if grads().apart() is true for its unit. With
  /// tensor parallelism, it runs for all parameters of a unit together, after the tp ranks have
  /// summed the shared gradients of the unit.
  void on_ready(std::function<void(ParamId)> callback) { ready_ = std::move(callback); }

 private:
  void refresh(bool frozen_too);
  void fire_ready(ParamId id);
  void count(ParamId id, int uses);

  /// `whole` is the whole unit that contains the parameters.
  [[nodiscard]] at::Tensor view(const at::Tensor& whole, WeightRef ref) const;

  std::vector<ParamSpec> specs_;
  bool freezes_ = false;
  std::vector<ParamId> unit_starts_;
  std::vector<std::string> unit_names_;
  const Mesh* mesh_ = nullptr;
  UnitLayout layout_;
  device::ParamDTypes dtypes_;
  at::Device device_ = at::kCPU;
  UnitWeights weights_;
  UnitGrads grads_;
  bool offload_ = false;
  at::Tensor main_;        // all trainable parts; undefined if the weights are the master weights
  at::Tensor host_grads_;  // all trainable parts; with offload only
  std::vector<int> uses_seen_;
  bool counts_uses_ = true;
  bool by_unit_ = false;  // fire ready events unit by unit
  SharedGrads shared_grads_;
  std::vector<std::size_t> missing_in_unit_;
  int num_backwards_ = 1;
  std::function<void(ParamId)> ready_;
  std::vector<std::function<void()>>* deferred_grads_ = nullptr;
};

}  // namespace trireme::parallel
