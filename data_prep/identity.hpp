#pragma once
#include <vector>

#include "core/fields.hpp"
#include "core/files/json.hpp"

namespace trireme {

/// Adds the fields whose traits say that they are part of an identity, by name, in the order of
/// their declaration; none that has the name of one in `without`. `defaults` are the same fields
/// of a struct as it is built.
void put_fields(const std::vector<Field>& fields, const std::vector<Field>& defaults,
                const std::vector<Field>& without, Json& identity);

template <class Config>
void put_fields(Config config, const std::vector<Field>& without, Json& identity) {
  Config defaults;
  put_fields(fields_of("", config), fields_of("", defaults), without, identity);
}

}  // namespace trireme
