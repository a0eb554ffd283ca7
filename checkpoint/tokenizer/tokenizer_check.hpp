#pragma once
#include <map>
#include <string>
#include <string_view>

namespace trireme {

/// Returns why these files hold no tokenizer that this program can read, naming what is not
/// supported; "" if they hold one. `where` names the files' origin.
std::string tokenizer_problem(const std::map<std::string, std::string>& files,
                              std::string_view where);

/// Checks the tokenizer of a model that is imported. If the tokenizer cannot be read, logs a warning
/// that says what the model can be used for, or with `required` throws Error(data).
void check_imported_tokenizer(const std::map<std::string, std::string>& files,
                              std::string_view where, bool required);

}  // namespace trireme
