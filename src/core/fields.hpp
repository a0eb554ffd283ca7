#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// Reflection of config structs. A component declares its keys once:
///
///   struct AdamWConfig {
///     double lr = 3e-4;
///     template <class Self, class Visit> static void fields(Self& self, Visit&& visit) {
///       visit("lr", self.lr, "peak learning rate, per optimizer step");
///     }
///   };
///
/// Member types: bool, std::int64_t, double, std::string. That list feeds TOML, environment,
/// command line, --help, validation and checkpoint metadata (src/config).
namespace trireme {

using FieldPointer = std::variant<bool*, std::int64_t*, double*, std::string*>;

struct Field {
  std::string key;  // "optim.lr"
  FieldPointer value;
  std::string help;
};

/// All fields of `config` under `section`.
template <class Config>
std::vector<Field> fields_of(const std::string& section, Config& config) {
  std::vector<Field> fields;
  Config::fields(config, [&](const char* name, auto& member, const char* help) {
    fields.push_back({section + "." + name, FieldPointer(&member), help});
  });
  return fields;
}

}  // namespace trireme
