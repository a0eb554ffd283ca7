#include "serve/openai/json_text.hpp"

#include <nlohmann/json.hpp>

namespace trireme {

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace trireme
