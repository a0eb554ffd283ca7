#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/precision.hpp"
#include "parallel/param_spec.hpp"
#include "parallel/tensor/shared_grads.hpp"
#include "parallel/units/unit_grads.hpp"
#include "parallel/units/unit_layout.hpp"
#include "parallel/units/unit_weights.hpp"

namespace trireme {

/// The one registry of parameters: declaration, storage, initial values, gradients, and the
/// "gradient ready" event.
///
/// Storage is in units, flat, in id order: weights, main weights (the same where the dtypes are),
/// main gradients. How much of each a rank holds is the mesh's ZeRO stage; what it updates, its
/// part of each unit, it always holds. Frozen parameters have weights alone; a model of nothing else
/// runs forward only. Declare all, then allocate once.
class ParamRegistry {
 public:
  /// What is declared from here on is shared as one. Without any, all parameters are one unit.
  void begin_unit(std::string name);

  /// What is declared from here on is frozen, whatever its spec says.
  void freeze() { freezes_ = true; }

  /// A name that is declared already is one more use of that parameter (tied weights).
  ParamId declare(ParamSpec spec);
  /// `mesh` must outlive this.
  void allocate(const Mesh& mesh, ParamDTypes dtypes, at::Device device);
  void initialize(std::uint64_t seed);

  [[nodiscard]] std::size_t size() const { return specs_.size(); }

  [[nodiscard]] const ParamSpec& spec(ParamId id) const { return specs_[id]; }

  [[nodiscard]] bool trained(WeightRef ref) const { return !specs_[ref.first].frozen; }

  [[nodiscard]] const UnitLayout& layout() const { return layout_; }

  [[nodiscard]] std::size_t unit_of(ParamId id) const { return layout_.param(id).unit; }

  [[nodiscard]] ParamDTypes dtypes() const { return dtypes_; }

  [[nodiscard]] at::Device device() const { return device_; }

  /// Views with this rank's local shape, of whole units.
  [[nodiscard]] at::Tensor weight(WeightRef ref);

  [[nodiscard]] at::Tensor weight(ParamId id) { return weight(WeightRef{id}); }

  /// Without ZeRO; else a rank holds main_part alone.
  [[nodiscard]] at::Tensor main(ParamId id) const;

  /// What backward adds a parameter's gradient to.
  [[nodiscard]] at::Tensor main_grad(ParamId id) { return view(grads_.whole(unit_of(id)), {id}); }

  /// What this rank updates of a unit, and by what: [layout().part(unit).count()]. Of a frozen unit
  /// the first is its weights, and there is no other.
  [[nodiscard]] at::Tensor main_part(std::size_t unit) const;

  [[nodiscard]] at::Tensor grad_part(std::size_t unit) const { return grads_.part(unit); }

  /// The gradients of a part where its main weights lie: grad_part, or with offload a copy in host
  /// memory.
  [[nodiscard]] at::Tensor update_grad(std::size_t unit) const;

  /// With offload, brings final gradients there; call before an optimizer's step.
  void fetch_grads();

  /// The same part of a buffer of all trained parts (optimizer state: make_state).
  [[nodiscard]] at::Tensor part_of(const at::Tensor& state, std::size_t unit) const;

  /// Bytes of main weights that are a copy of their own.
  [[nodiscard]] std::int64_t main_bytes() const {
    return main_.defined() ? static_cast<std::int64_t>(main_.nbytes()) : 0;
  }

  /// Zeros for every element this rank updates; in host memory with offload.
  [[nodiscard]] at::Tensor make_state() const;

  [[nodiscard]] UnitWeights& weights() { return weights_; }

  [[nodiscard]] UnitGrads& grads() { return grads_; }

  /// From main weights to those the model computes with, on all ranks; call when any were set.
  /// Collective under ZeRO.
  void refresh_weights() { refresh(/*frozen_too=*/true); }

  /// The same after an update, which leaves frozen ones as they are.
  void refresh_trained() { refresh(/*frozen_too=*/false); }

  /// Starts an update of `num_backwards` backward passes: gradients to zero, use counts to zero.
  void begin_update(int num_backwards);

  /// Where the gradients of weights are added to: at once, or with a list each `in_turn` call into
  /// it, for a pipeline's passes of weight gradients.
  void collect_turns(std::vector<std::function<void()>>* list) { turns_ = list; }

  /// Runs `add`, which adds gradients below, when it is its turn.
  void in_turn(std::function<void()> add) {
    if (turns_ == nullptr) {
      add();
    } else {
      turns_->push_back(std::move(add));
    }
  }

  /// Adds a gradient, W's shape, to the main gradient, then fires the ready event of each parameter
  /// that has all its uses. Only of what is trained.
  void add_gradient(WeightRef ref, const at::Tensor& grad);
  /// The same for W of y = x W^T: x [.., in], grad_y [.., out].
  void add_gradient_of_linear(WeightRef ref, const at::Tensor& x, const at::Tensor& grad_y);
  /// As add_gradient, for a gradient that the caller has already added into main_grad.
  void gradient_added(WeightRef ref);

  /// Called with every parameter whose gradient is complete, in backward order: of the update, or
  /// where grads().sharded(), of each backward pass. With tensor parallelism unit by unit, when
  /// the ranks of tp have added up what they share.
  void on_ready(std::function<void(ParamId)> callback) { ready_ = std::move(callback); }

 private:
  void refresh(bool frozen_too);
  void fire_ready(ParamId id);

  /// `whole`: all of the unit that they lie in.
  [[nodiscard]] at::Tensor view(const at::Tensor& whole, WeightRef ref) const;

  std::vector<ParamSpec> specs_;
  bool freezes_ = false;
  std::vector<ParamId> unit_starts_;
  std::vector<std::string> unit_names_;
  UnitLayout layout_;
  ParamDTypes dtypes_;
  at::Device device_ = at::kCPU;
  UnitWeights weights_;
  UnitGrads grads_;
  bool offload_ = false;
  at::Tensor main_;        // all trained parts; undefined where weights are main weights
  at::Tensor host_grads_;  // all trained parts; with offload
  std::vector<int> uses_seen_;
  bool by_unit_ = false;  // the ready events
  SharedGrads shared_grads_;
  std::vector<std::size_t> missing_in_unit_;
  int num_backwards_ = 1;
  std::function<void(ParamId)> ready_;
  std::vector<std::function<void()>>* turns_ = nullptr;
};

}  // namespace trireme
