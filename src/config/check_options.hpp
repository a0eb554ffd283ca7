#pragma once
#include <vector>

#include "core/fields.hpp"
#include "core/problems.hpp"

namespace trireme {

/// Adds what is wrong with values that their traits limit: "--kind rl, must be pretrain, sft or
/// dpo", "--copies 0, must be in [1, 1000]".
void check_options(const std::vector<Field>& fields, Problems& problems);

/// All that is wrong with a config: what its traits forbid, and what `check(const Config&,
/// Problems&)` says where there is one beside it.
template <class Config>
void check_config(const Config& config, Problems& problems) {
  Config copy = config;  // a field's pointer is to what may change
  check_options(fields_of("options", copy), problems);
  if constexpr (requires { check(config, problems); }) check(config, problems);
}

/// The same for a library, whose caller need not be a command: throws one Error(usage).
template <class Config>
void throw_if_wrong(const Config& config) {
  Problems problems;
  check_config(config, problems);
  problems.throw_if_any();
}

}  // namespace trireme
