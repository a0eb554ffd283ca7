#pragma once
#include <vector>

#include "core/fields.hpp"
#include "core/problems.hpp"

namespace trireme::config {

/// Adds a problem for each value that the traits of its field forbid: "--kind rl, must be pretrain,
/// sft or dpo", "--copies 0, must be in [1, 1000]".
void check_options(const std::vector<Field>& fields, Problems& problems);

/// Adds all problems of a config: values that its traits forbid, and the problems that
/// `check(const Config&, Problems&)` finds, if that function exists.
template <class Config>
void check_config(const Config& config, Problems& problems) {
  Config copy = config;  // fields_of() needs mutable members
  check_options(fields_of("options", copy), problems);
  if constexpr (requires { check(config, problems); }) check(config, problems);
}

/// Like check_config, but throws one Error(usage) with all problems.
template <class Config>
void throw_if_wrong(const Config& config) {
  Problems problems;
  check_config(config, problems);
  problems.throw_if_any();
}

}  // namespace trireme::config
