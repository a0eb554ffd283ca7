#pragma once
#include <string>
#include <string_view>

#include "serve/served_model.hpp"

/// Requests that need no generation: body in, JSON out. All throw ApiError(400) for a body that is not
/// as it should be.
namespace trireme {

/// /v1/models.
std::string models_text(const ServedModel& model, std::string_view body);
/// /v1/models/NAME; ApiError(404) for another one.
std::string one_model_text(const ServedModel& model, std::string_view name);

/// As llama.cpp's server: {"content", "add_special": false, "parse_special": true, "with_pieces": false}
/// -> {"tokens": ids, or {"id", "piece"} with pieces}.
std::string tokenize_text(const ServedModel& model, std::string_view body);
/// {"tokens"} -> {"content"}. An id of the model that no token has adds no text.
std::string detokenize_text(const ServedModel& model, std::string_view body);
/// A request to /v1/chat/completions -> {"prompt"}, as the model reads it.
std::string apply_template_text(const ServedModel& model, std::string_view body);

/// ApiError(404) unless `name`, of a request, is the model's or "".
void check_model_name(const ServedModel& model, std::string_view name);

}  // namespace trireme
