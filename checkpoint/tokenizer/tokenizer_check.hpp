#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// Returns why these files hold no tokenizer that this program can read, naming what is not
/// supported; "" if they hold one. `where` names the files' origin.
std::string tokenizer_problem(const std::map<std::string, std::string>& files,
                              std::string_view where);

/// Checks the tokenizer of a model that is imported. If the tokenizer cannot be read, logs a warning
/// that says what the model can be used for, or with `required` throws Error(data). `required` is
/// what --require-tokenizer says; nullopt where a command has no such option.
void check_imported_tokenizer(const std::map<std::string, std::string>& files,
                              std::string_view where, std::optional<bool> required);

}  // namespace trireme
