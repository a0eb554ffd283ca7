#pragma once
#include <vector>

#include "core/fields.hpp"
#include "core/files/json.hpp"

namespace trireme::data_prep {

/// Adds fields to `identity` by name, in the order of their declaration, as their identity trait
/// requires. Skips names in `without`. `defaults` are the fields of a default-constructed struct.
void put_fields(const std::vector<Field>& fields, const std::vector<Field>& defaults,
                const std::vector<Field>& without, Json& identity);

template <class Config>
void put_fields(Config config, const std::vector<Field>& without, Json& identity) {
  Config defaults;
  put_fields(fields_of("", config), fields_of("", defaults), without, identity);
}

}  // namespace trireme::data_prep
