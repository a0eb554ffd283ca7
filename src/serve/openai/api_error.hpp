#pragma once
#include <exception>
#include <string>
#include <string_view>

namespace trireme::serve {

/// An error response. The status decides the type: 400, 404, 405 and 413 are invalid_request_error,
/// 401 authentication_error, 403 permission_error, 408 timeout_error, 429 rate_limit_error, 503
/// unavailable_error, and all others server_error.
class ApiError : public std::exception {
 public:
  /// `param` is the name of the invalid field. `code` is the reason in a form that programs can
  /// check. An empty text becomes null in the response.
  ApiError(int status, std::string message, std::string param = {}, std::string code = {})
      : status_(status),
        message_(std::move(message)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

  [[nodiscard]] int status() const noexcept { return status_; }

  [[nodiscard]] const std::string& param() const noexcept { return param_; }

  [[nodiscard]] const std::string& code() const noexcept { return code_; }

  /// Returns {"error": {"message", "type", "param", "code"}}. The text is always valid UTF-8.
  [[nodiscard]] std::string body() const;

 private:
  int status_;
  std::string message_;
  std::string param_;
  std::string code_;
};

/// Throws ApiError(400) for a field with an invalid value.
[[noreturn]] void refuse_field(std::string param, std::string message);

/// Converts the current exception to an error response. An ApiError does not change. Error(usage)
/// and Error(data) get status 400, Error(resource) and std::bad_alloc get 503, and all other
/// exceptions get 500.
ApiError current_api_error();

}  // namespace trireme::serve
