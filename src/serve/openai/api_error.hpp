#pragma once
#include <exception>
#include <string>
#include <string_view>

namespace trireme {

/// Why a request gets no answer. Its status decides the type: 400, 404, 405 and 413 are
/// invalid_request_error, 401 authentication_error, 403 permission_error, 408 timeout_error, 429
/// rate_limit_error, 503 unavailable_error, others server_error.
class ApiError : public std::exception {
 public:
  /// `param` names the field that is wrong, `code` the reason for programs; "" becomes null.
  ApiError(int status, std::string message, std::string param = {}, std::string code = {})
      : status_(status),
        message_(std::move(message)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

  [[nodiscard]] int status() const noexcept { return status_; }

  [[nodiscard]] const std::string& param() const noexcept { return param_; }

  /// {"error": {"message", "type", "param", "code"}}; valid UTF-8 whatever the message holds.
  [[nodiscard]] std::string body() const;

 private:
  int status_;
  std::string message_;
  std::string param_;
  std::string code_;
};

/// A field with a value that cannot be: 400.
[[noreturn]] void refuse_field(std::string param, std::string message);

/// The exception in flight as an answer: an ApiError as it is, Error(usage) and Error(data) as 400,
/// Error(resource) and std::bad_alloc as 503, anything else as 500.
ApiError current_api_error();

}  // namespace trireme
