#pragma once
#include <vector>

#include "core/fields.hpp"
#include "core/problems.hpp"

namespace trireme {

/// Adds what is wrong with values that their traits limit: "--kind rl, must be pretrain, sft or
/// dpo", "--copies 0, must be in [1, 1000]".
void check_options(const std::vector<Field>& fields, Problems& problems);

/// The same for all fields of a config, by value: a field's pointer is to what may change.
template <class Config>
void check_options(Config config, Problems& problems) {
  check_options(fields_of("options", config), problems);
}

/// Throws one Error(usage) with all that `check(const Config&, Problems&)`, found beside Config,
/// has to say: for a library whose caller need not be a command.
template <class Config>
void throw_if_wrong(const Config& config) {
  Problems problems;
  check(config, problems);
  problems.throw_if_any();
}

}  // namespace trireme
