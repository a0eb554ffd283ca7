#pragma once
#include <cstdint>
#include <limits>
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
/// Member types are bool, std::int64_t, double, std::string and std::vector<std::string>. The keys
/// serve TOML, environment, command line, --help, validation and checkpoint metadata (src/config).
/// A struct includes another struct's fields by calling its fields() with the same visit.
namespace trireme {

using FieldPointer =
    std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*>;

/// Says if a value is part of the identity of a made artifact. `unless_default` is for keys added
/// after the first version, so that existing artifacts keep their identity.
enum class Identity { no, always, unless_default };

/// Optional properties of a field, given as the fourth argument of visit: `{.placeholder = "N"}`.
struct FieldTraits {
  std::string placeholder = "";  // shown in help: "DIR|FILE"; a bool without one takes no value
  std::vector<std::string> values = {};  // all allowed values; help joins them by '|'
  bool required = false;
  bool positional = false;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  Identity identity = Identity::no;
};

struct Field {
  std::string key;  // "optim.lr"
  FieldPointer value;
  std::string help;
  FieldTraits traits = {};
};

/// Returns all fields of `config`, with keys under `section`.
template <class Config>
std::vector<Field> fields_of(const std::string& section, Config& config) {
  std::vector<Field> fields;
  Config::fields(config, [&](const char* name, auto& member, const char* help,
                             const FieldTraits& traits = {}) {
    fields.push_back({section + "." + name, FieldPointer(&member), help, traits});
  });
  return fields;
}

}  // namespace trireme
