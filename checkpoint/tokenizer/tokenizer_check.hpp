#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

/// Returns why this program cannot read the tokenizer in `files`, naming what is not supported; ""
/// if it can. `where` names the origin of the files.
std::string tokenizer_problem(const std::map<std::string, std::string>& files,
                              std::string_view where);

/// Checks the tokenizer of an imported model. If the tokenizer cannot be read, logs a warning that
/// lists what the model can be used for, or throws Error(data) if `required`. `required` is the
/// value of --require-tokenizer; nullopt if the command has no such option.
void check_imported_tokenizer(const std::map<std::string, std::string>& files,
                              std::string_view where, std::optional<bool> required);

}  // namespace trireme::checkpoint
