#include "serve/openai/api_error.hpp"

#include <array>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"

namespace trireme::serve {
namespace {

const char* error_type(int status) {
  constexpr std::array<std::pair<int, const char*>, 5> kTypes{{{401, "authentication_error"},
                                                               {403, "permission_error"},
                                                               {408, "timeout_error"},
                                                               {429, "rate_limit_error"},
                                                               {503, "unavailable_error"}}};
  for (const auto& [known, type] : kTypes) {
    if (status == known) return type;
  }
  return status < 500 ? "invalid_request_error" : "server_error";
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

std::string ApiError::body() const {
  return json_text({{"error",
                     {{"message", message_},
                      {"type", error_type(status_)},
                      {"param", text_or_null(param_)},
                      {"code", text_or_null(code_)}}}});
}

void refuse_field(std::string param, std::string message) {
  throw ApiError(400, std::move(message), std::move(param), "invalid_value");
}

ApiError current_api_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    switch (error.kind()) {
      case ErrorKind::usage:
      case ErrorKind::data:
        return {400, error.what()};
      case ErrorKind::resource:
        return {503, error.what(), "", "out_of_memory"};
      default:
        return {500, error.what()};
    }
  } catch (const std::bad_alloc&) {
    return {503, "The server is out of memory. Try again later.", "", "out_of_memory"};
  } catch (const std::exception& error) {
    return {500, error.what()};
  } catch (...) {
    return {500, "unknown error"};
  }
}

}  // namespace trireme::serve
