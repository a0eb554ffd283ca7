#pragma once
#include <array>
#include <cstdint>
#include <string_view>

/// Activations of the MLP: act(gate) * up, and act(x) without gate. No torch here: the model
/// configuration, the Hugging Face mapping, the plain path, the CPU and CUDA kernels read the same
/// list.
///
/// An activation defines its names and its arithmetic once, for any `Math`: whole tensors (plain
/// path, also fp64) or vector lanes (kernels). `incoming` is the gradient of the result. Source:
/// Shazeer, "GLU variants improve transformer", 2020.
namespace trireme::ops {

struct ActivationNames {
  std::string_view name;     // model.activation
  std::string_view hf_name;  // hidden_act of a Hugging Face config.json
};

template <class X>
struct GatedGrads {
  X gate;
  X up;
};

/// x sigmoid(x)
struct Silu {
  static constexpr ActivationNames names{"silu", "silu"};

  template <class Math, class X>
  static X forward(const X& gate, const X& up) {
    return Math::silu(gate) * up;
  }

  template <class Math, class X>
  static GatedGrads<X> backward(const X& gate, const X& up, const X& incoming) {
    constexpr typename Math::Number one = 1;
    const X sigmoid = Math::sigmoid(gate);
    // d silu(g) / dg = s + g s (1 - s)
    return {incoming * up * (sigmoid * (gate * (one - sigmoid) + one)), incoming * gate * sigmoid};
  }
};

/// x (1 + tanh(u)) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
/// Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
struct GeluTanh {
  static constexpr ActivationNames names{"gelu_tanh", "gelu_pytorch_tanh"};

  template <class Math, class X>
  static X forward(const X& gate, const X& up) {
    return gate * part<Math>(near_zero<Math>(gate)) * up;
  }

  template <class Math, class X>
  static GatedGrads<X> backward(const X& gate, const X& up, const X& incoming) {
    using Number = typename Math::Number;
    constexpr Number one = 1;
    const X x = near_zero<Math>(gate);
    const X sigmoid = part<Math>(x);
    const X rise = x * x * Number(3 * kCubic * kTwiceRoot) + Number(kTwiceRoot);  // d 2u / dx
    return {incoming * up * (sigmoid * (x * rise * (one - sigmoid) + one)),
            incoming * gate * sigmoid};
  }

 private:
  static constexpr double kTwiceRoot = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;

  /// For larger |x| the sigmoid is 0 or 1 in every precision, and x^3 could overflow.
  template <class Math, class X>
  static X near_zero(const X& x) {
    return Math::clamp(x, typename Math::Number(40));
  }

  template <class Math, class X>
  static X part(const X& x) {
    using Number = typename Math::Number;
    return Math::sigmoid(x * (x * x * Number(kCubic * kTwiceRoot) + Number(kTwiceRoot)));
  }
};

/// max(x, 0)^2. Source: So et al., "Primer", NeurIPS 2021.
struct Relu2 {
  static constexpr ActivationNames names{"relu2", "relu2"};

  template <class Math, class X>
  static X forward(const X& gate, const X& up) {
    const X positive = Math::relu(gate);
    return positive * positive * up;
  }

  template <class Math, class X>
  static GatedGrads<X> backward(const X& gate, const X& up, const X& incoming) {
    const X positive = Math::relu(gate);
    return {incoming * up * (positive + positive), incoming * (positive * positive)};
  }
};

/// x Phi(x) with the normal distribution function Phi. The kernels do not have it: a gated MLP with
/// this activation takes the plain path, with several operations on whole tensors.
/// Source: Hendrycks and Gimpel, "Gaussian error linear units", 2016.
struct Gelu {
  static constexpr ActivationNames names{"gelu", "gelu"};

  template <class Math, class X>
  static X forward(const X& gate, const X& up) {
    return gate * below<Math>(gate) * up;
  }

  template <class Math, class X>
  static GatedGrads<X> backward(const X& gate, const X& up, const X& incoming) {
    using Number = typename Math::Number;
    const X density = Math::exp(gate * gate * Number(-0.5)) * Number(0.3989422804014327);
    return {incoming * up * (below<Math>(gate) + gate * density),
            incoming * gate * below<Math>(gate)};
  }

 private:
  /// Returns Phi(x) = (1 + erf(x / sqrt(2))) / 2.
  template <class Math, class X>
  static X below(const X& x) {
    using Number = typename Math::Number;
    return (Math::erf(x * Number(0.7071067811865476)) + Number(1)) * Number(0.5);
  }
};

template <class... Each>
struct ActivationList {
  static constexpr std::array<ActivationNames, sizeof...(Each)> names{Each::names...};

  /// Calls body(Each{}) for the activation at `index`.
  template <class Body>
  static void pick(std::int64_t index, Body&& body) {
    std::int64_t i = 0;
    ((index == i++ ? body(Each{}) : void()), ...);
  }
};

/// The activations that kernels compute.
using Activations = ActivationList<Silu, GeluTanh, Relu2>;
/// These first, then the others.
using AllActivations = ActivationList<Silu, GeluTanh, Relu2, Gelu>;

/// An index into AllActivations.
enum class Activation : std::int64_t {};

}  // namespace trireme::ops
