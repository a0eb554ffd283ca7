#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/files/json.hpp"

namespace trireme::serve {

/// Reads the fields of a JSON object of a request and checks their types. null counts as absent.
/// All functions throw ApiError(400) that names the field: "temperature is a string, must be a
/// number", "n is 0, must be an integer in [1, 128]". The object remembers which fields were read.
/// Call refuse_unknown last: it refuses all fields that were not read.
class BodyFields {
 public:
  /// `object` must outlive this BodyFields. `prefix` is the path of the object, for example
  /// "stream_options.".
  explicit BodyFields(const Json& object, std::string prefix = {});

  /// Returns null if the field is absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  /// Returns an integer in [least, most].
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key, std::int64_t least,
                                                    std::int64_t most) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  [[nodiscard]] std::optional<BodyFields> object(std::string_view key) const;

  /// Throws ApiError(400) for the first field that was never read, with the message of OpenAI's
  /// API: "Unrecognized request argument supplied: top_kk; did you mean 'top_k'?".
  void refuse_unknown() const;

  /// Returns the path of a field, for example "stream_options.include_usage".
  [[nodiscard]] std::string name_of(std::string_view key) const;
  /// Throws ApiError(400) with "<field> is <value>, must be <allowed>".
  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const;

 private:
  const Json* object_;
  std::string prefix_;
  std::shared_ptr<std::set<std::string>> asked_;  // shared by copies
};

/// Parses the body of a request as a JSON object. Throws ApiError(400).
Json parse_body(std::string_view body);

}  // namespace trireme::serve
