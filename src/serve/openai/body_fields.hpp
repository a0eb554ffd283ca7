#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/files/json.hpp"

namespace trireme {

/// The fields of a JSON object of a request, with their types checked. null is absent. All throw
/// ApiError(400) that names the field: "temperature is a string, must be a number",
/// "n is 0, must be an integer in [1, 128]". Remembers which fields were asked for, so that
/// refuse_unknown, called last, finds the others.
class BodyFields {
 public:
  /// `object` must outlive this; `prefix` names it: "stream_options.".
  explicit BodyFields(const Json& object, std::string prefix = {});

  /// Null if it is absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  /// In [least, most].
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key, std::int64_t least,
                                                    std::int64_t most) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  [[nodiscard]] std::optional<BodyFields> object(std::string_view key) const;

  /// Throws ApiError(400) for the first field that is there and was never asked for, as OpenAI's
  /// service does: "Unrecognized request argument supplied: top_kk; did you mean 'top_k'?".
  void refuse_unknown() const;

  /// "stream_options.include_usage".
  [[nodiscard]] std::string name_of(std::string_view key) const;
  /// Throws for a field whose value is not what it must be: "<field> is <value>, must be <allowed>".
  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const;

 private:
  const Json* object_;
  std::string prefix_;
  std::shared_ptr<std::set<std::string>> asked_;  // shared by the copies of this
};

/// A request's body as an object. Throws ApiError(400).
Json parse_body(std::string_view body);

}  // namespace trireme
