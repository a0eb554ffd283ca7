#include "bin/trireme/print_figures.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/process/run_main.hpp"

namespace trireme {

int print_figures(const Json& figures, bool as_json) {
  if (as_json) {
    print(json_line(figures));
    return kExitDone;
  }
  std::string table;
  for (const auto& [name, value] : figures.items())
    table +=
        formatted("{}: {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  print(table);
  return kExitDone;
}

}  // namespace trireme
