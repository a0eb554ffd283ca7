#include "data_prep/identity.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/config_set.hpp"

namespace trireme::data_prep {
namespace {

Json value_of(const Field& field) {
  return std::visit([](const auto* value) { return Json(*value); }, field.value);
}

}  // namespace

void put_fields(const std::vector<Field>& fields, const std::vector<Field>& defaults,
                const std::vector<Field>& without, Json& identity) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string name(config::name_of(fields[i].key));
    const bool left_out = std::any_of(without.begin(), without.end(), [&](const Field& other) {
      return config::name_of(other.key) == name;
    });
    if (left_out || fields[i].traits.identity == Identity::no) continue;
    const Json value = value_of(fields[i]);
    const bool is_default = value == value_of(defaults[i]);
    if (fields[i].traits.identity == Identity::unless_default && is_default) continue;
    identity[name] = value;
  }
}

}  // namespace trireme::data_prep
