#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/mesh.hpp"
#include "parallel/slice.hpp"

namespace trireme {

using ParamId = std::size_t;

/// `count` neighbouring parameters used as one matrix, their rows one below another (count 1: a
/// parameter alone).
struct WeightRef {
  ParamId first = 0;
  std::size_t count = 1;
};

/// Law of initial values; the value of an element depends on (seed, name, global flat index) only.
struct InitLaw {
  enum class Kind { normal, ones } kind = Kind::normal;
  double scale = 0.02;  // standard deviation
};

/// Everything the project knows about one parameter; there is no second list.
struct ParamSpec {
  std::string name;                      // Hugging Face name
  std::vector<std::int64_t> shape = {};  // global, logical
  InitLaw init = {};
  int split_dim = -1;  // the dim cut over `split_axis`; -1: replicated
  Axis split_axis = Axis::tp;
  bool decay = true;             // weight decay applies
  std::string group = "matrix";  // optimizer group: embedding, matrix, vector
  int uses = 1;                  // gradients that one backward pass adds (a tied embedding: 2)
  bool fuse_with_previous =
      false;  // lies directly behind the previous one, so that both are rows of one matrix
};

/// What the numbers are: weights the model computes with, and the main copy the optimizer updates.
struct ParamDTypes {
  at::ScalarType compute = at::kFloat;
  at::ScalarType main = at::kFloat;  // also of main gradients and optimizer state
};

/// The one registry of parameters: declaration, storage, initial values, gradients, and the
/// "gradient ready" event.
///
/// Storage is flat, in id order: main weights, main gradients, and (when the dtypes differ) compute
/// weights, each one buffer with parameters as views. Declare all, then allocate once.
class ParamRegistry {
 public:
  ParamId declare(ParamSpec spec);
  void allocate(const Mesh& mesh, ParamDTypes dtypes, at::Device device);
  void initialize(std::uint64_t seed);

  [[nodiscard]] std::size_t size() const { return params_.size(); }

  [[nodiscard]] const ParamSpec& spec(ParamId id) const { return params_[id].spec; }

  [[nodiscard]] const Slice& slice(ParamId id) const { return params_[id].slice; }

  [[nodiscard]] ParamDTypes dtypes() const { return dtypes_; }

  [[nodiscard]] at::Device device() const { return main_.device(); }

  /// Views with this rank's local shape.
  [[nodiscard]] at::Tensor weight(ParamId id) const { return view(compute_, {id}); }

  [[nodiscard]] at::Tensor main(ParamId id) const { return view(main_, {id}); }

  [[nodiscard]] at::Tensor main_grad(ParamId id) const { return view(grad_, {id}); }

  [[nodiscard]] at::Tensor weight(WeightRef ref) const { return view(compute_, ref); }

  /// A tensor like main(id) inside a flat buffer laid out as flat_main() (optimizer state).
  [[nodiscard]] at::Tensor view_of(const at::Tensor& flat, ParamId id) const {
    return view(flat, {id});
  }

  [[nodiscard]] std::int64_t flat_begin(ParamId id) const { return params_[id].begin; }

  [[nodiscard]] std::int64_t flat_end(ParamId id) const {
    return params_[id].begin + params_[id].count;
  }

  [[nodiscard]] const at::Tensor& flat_main() const { return main_; }

  [[nodiscard]] const at::Tensor& flat_grad() const { return grad_; }

  /// Copies main weights to compute weights; call after every change of main weights.
  void refresh_weights();

  /// Starts an update of `num_backwards` backward passes: gradients to zero, use counts to zero.
  void begin_update(int num_backwards);
  /// Adds a gradient, W's shape, to the main gradient, then fires the ready event of each parameter
  /// that has all its uses.
  void add_gradient(WeightRef ref, const at::Tensor& grad);
  /// The same for W of y = x W^T: x [.., in], grad_y [.., out].
  void add_gradient_of_linear(WeightRef ref, const at::Tensor& x, const at::Tensor& grad_y);
  /// As add_gradient, for a gradient that the caller has already added into main_grad.
  void gradient_added(WeightRef ref);

  /// Called with every parameter whose gradient of this update is complete, in backward order.
  void on_ready(std::function<void(ParamId)> callback) { ready_ = std::move(callback); }

 private:
  struct Param {
    ParamSpec spec;
    Slice slice;
    std::int64_t begin = 0;  // element in the flat buffers
    std::int64_t count = 0;
    int uses_seen = 0;
  };

  [[nodiscard]] at::Tensor view(const at::Tensor& flat, WeightRef ref) const;

  std::vector<Param> params_;
  ParamDTypes dtypes_;
  at::Tensor main_;
  at::Tensor compute_;
  at::Tensor grad_;
  int num_backwards_ = 1;
  std::function<void(ParamId)> ready_;
};

}  // namespace trireme
