#include "serve/openai/api_error.hpp"

#include <new>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"

namespace trireme {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 408:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
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

}  // namespace trireme
