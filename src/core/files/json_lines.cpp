#include "core/files/json_lines.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"

namespace trireme {

void for_each_line(std::string_view content, std::string_view name,
                   const std::function<void(std::string_view, const std::string&)>& call) {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view line = content.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    call(line, formatted("{}:{}", name, number));
  }
}

void for_each_json_line(std::string_view content, std::string_view name,
                        const std::function<void(const Json&, const std::string&)>& call) {
  for_each_line(content, name, [&](std::string_view line, const std::string& where) {
    call(parse_json(line, where), where);
  });
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_line(const Json& value) {
  return json_text(value) + "\n";
}

}  // namespace trireme
