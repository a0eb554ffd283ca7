#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "ops/path.hpp"

/// Compares an operation, its outputs and every gradient, with a reference that ATen differentiates
/// in fp64.
namespace trireme::ops::testing {

using Tensors = std::vector<at::Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

inline constexpr double kEps = 1e-6;

/// Computes the RMS norm by its formula.
inline at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.pow(2).mean(-1, true) + kEps).sqrt() * weight;
}

struct Case {
  Path path;
  at::ScalarType dtype;
  double tolerance;  // bound of the largest error, relative to the largest element (or kFloor)
};

inline std::string name(const Case& c) {
  return std::string(c.path == Path::fast ? "fast " : "plain ") + at::toString(c.dtype);
}

/// Returns cases with bounds for one rounding of the result and a few of sums in fp32. bf16 keeps 8
/// bits, so one rounding is 2^-9.
inline const std::vector<Case>& rounding_cases() {
  static const std::vector<Case> cases{
      {Path::plain, at::kDouble, 1e-12},  {Path::fast, at::kDouble, 1e-12},
      {Path::plain, at::kFloat, 4e-6},    {Path::fast, at::kFloat, 4e-6},
      {Path::plain, at::kBFloat16, 6e-3}, {Path::fast, at::kBFloat16, 6e-3}};
  return cases;
}

/// Inputs are of order one. Values that cancel to (nearly) zero are compared relative to this
/// floor.
inline constexpr double kFloor = 0.05;

inline at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble);
}

inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                         const std::string& what) {
  ASSERT_TRUE(actual.defined() && expected.defined()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const auto difference = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs();
  const auto scale = expected.to(at::kDouble).abs().max().item<double>();
  ASSERT_TRUE(difference.isfinite().all().item<bool>()) << what << " is not finite";
  EXPECT_LE(difference.max().item<double>(), tolerance * std::max(scale, kFloor)) << what;
}

/// Runs `operation` and its autograd on `inputs` cast to the case's dtype, and `reference` on the
/// same values in fp64.
inline void expect_same_as_reference(const Case& c, const Tensors& inputs,
                                     const Operation& operation, const Operation& reference,
                                     const std::string& what) {
  const auto label = what + " " + name(c) + " ";
  Tensors own;
  Tensors exact;
  for (const auto& input : inputs) {
    own.push_back(input.detach().to(c.dtype, /*non_blocking=*/false, /*copy=*/true));
    exact.push_back(own.back().to(at::kDouble, false, true).requires_grad_());
    own.back().requires_grad_();
  }
  const auto outputs = operation(own);
  const auto expected = reference(exact);
  ASSERT_EQ(outputs.size(), expected.size());
  Tensors incoming;
  Tensors incoming_exact;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    expect_close(outputs[i].detach(), expected[i].detach(), c.tolerance,
                 label + "output " + std::to_string(i));
    incoming.push_back(at::randn(outputs[i].sizes(), at::kDouble).to(outputs[i].scalar_type()));
    incoming_exact.push_back(incoming.back().to(at::kDouble));
  }
  const auto grads = torch::autograd::grad(outputs, own, incoming);
  const auto expected_grads = torch::autograd::grad(expected, exact, incoming_exact);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    EXPECT_EQ(grads[i].scalar_type(), c.dtype) << label;
    expect_close(grads[i], expected_grads[i], c.tolerance, label + "gradient " + std::to_string(i));
  }
}

}  // namespace trireme::ops::testing
