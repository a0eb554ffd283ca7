#pragma once
#include <vector>

#include "parallel/param_registry.hpp"

namespace trireme {

/// Sum of squares of each parameter's main gradient, in fp64, by id.
/// Not-finite gradients give a not-finite sum.
std::vector<double> grad_squares(const ParamRegistry& registry);

/// Root of the sums added in id order: the same number on every rank and for every layout that
/// holds whole gradients.
double global_norm(const std::vector<double>& squares);

/// Factor on all gradients: min(1, clip_norm / (norm + 1e-6)); 1 when clip_norm is 0.
double clip_factor(double norm, double clip_norm);

}  // namespace trireme
