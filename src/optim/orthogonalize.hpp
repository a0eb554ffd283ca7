#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

namespace trireme::optim {

/// Methods that replace a matrix U S V^T (singular value decomposition) by U V^T.
///   polar_express  5 iterations with coefficients of their own; singular values within a few percent
///                  of 1. Source: Amsel et al., "The Polar Express", 2025; coefficients of
///                  modded-nanogpt (safety factor 1.02).
///   newton_schulz  5 iterations with the same coefficients; singular values in about [0.68, 1.13].
///                  Source: Jordan et al., "Muon", 2024.
///   gram           polar_express, computed with the Gram matrix X X^T of the shorter side
///   exact          singular value decomposition; zero singular values stay zero
enum class Orthogonalize { polar_express, newton_schulz, gram, exact };

inline constexpr std::array<std::string_view, 4> kOrthogonalizeNames{
    "polar_express", "newton_schulz", "gram", "exact"};

/// Returns the orthogonalized matrices of `x` [count, rows, columns].
at::Tensor orthogonalized(const at::Tensor& x, Orthogonalize method);

}  // namespace trireme::optim
