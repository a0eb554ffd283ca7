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
/// Member types: bool, std::int64_t, double, std::string, std::vector<std::string>. That list feeds
/// TOML, environment, command line, --help, validation and checkpoint metadata (src/config).
/// A struct takes in another one's fields by calling its fields() with the same visit.
namespace trireme {

using FieldPointer =
    std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*>;

/// Whether a value is part of what a made thing is known by. `unless_default` is for what came
/// after the first version: things made before it stay the same.
enum class Identity { no, always, unless_default };

/// What else a field says of itself, as a fourth argument of visit: `{.placeholder = "N"}`.
struct FieldTraits {
  std::string placeholder = "";          // in help: "DIR|FILE"; a bool that has none takes no value
  std::vector<std::string> values = {};  // all that a text may be; help joins them by '|'
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

/// All fields of `config` under `section`.
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
