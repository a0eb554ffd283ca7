#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

/// Keys of a configuration section that one entry of a table declares: an optimizer in [optim], a
/// metrics sink in [metrics]. The section holds them as a list. The entry reads them back into its
/// own struct with fields().
namespace trireme {

struct OwnKey {
  std::string name;
  std::string help;
  std::variant<bool, std::int64_t, double, std::string> value;
};

/// Returns the keys of `Own::fields` with the defaults of the struct.
template <class Own>
std::vector<OwnKey> own_keys() {
  std::vector<OwnKey> keys;
  Own own;
  Own::fields(own, [&](const char* name, const auto& value, const char* help) {
    keys.push_back({name, help, value});
  });
  return keys;
}

/// Returns an `Own` with the values of `keys`. A key that is not in the list keeps its default.
template <class Own>
[[nodiscard]] Own read_own_keys(const std::vector<OwnKey>& keys) {
  Own own;
  Own::fields(own, [&](const char* name, auto& member, const char*) {
    for (const OwnKey& key : keys) {
      if (key.name == name) member = std::get<std::decay_t<decltype(member)>>(key.value);
    }
  });
  return own;
}

/// Calls visit(name, value, help) for every key of the table entries.
template <class Keys, class Visit>
void visit_own_keys(Keys& keys, Visit&& visit) {
  for (auto& key : keys) {
    std::visit([&](auto& value) { visit(key.name.c_str(), value, key.help.c_str()); }, key.value);
  }
}

}  // namespace trireme
