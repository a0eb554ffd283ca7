#include "bin/start_limit.hpp"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_set.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "train.start_timeout_s";
constexpr const char* kVariable = "TRIREME_TRAIN_START_TIMEOUT_S";
constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

std::optional<double> limit_in(const std::string& text) {
  const auto number = parse_number(text);
  return number && *number > 0 ? number : std::nullopt;
}

/// Reads only regular files: a pipe (`--config <(...)`) can be read once, by the parser.
std::optional<double> limit_in_file(const fs::path& path) {
  std::optional<double> limit;
  try {
    if (!fs::is_regular_file(path)) return std::nullopt;
    for (const config::EarlierValue& value :
         config::earlier_values(read_file(path, kMaxBytes), path.string()))
      if (value.key == kKey) limit = limit_in(value.text);
  } catch (const std::exception&) {  // the parser reports the error
  }
  return limit;
}

std::vector<std::string> all_options(int argc, const char* const* argv,
                                     const std::vector<std::string>& names) {
  std::vector<std::string> values;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    for (const std::string& name : names) {
      if (word == name && i + 1 < argc) values.emplace_back(argv[i + 1]);
      if (word.starts_with(name + '=')) values.push_back(word.substr(name.size() + 1));
    }
  }
  return values;
}

std::optional<double> timeout_s(int argc, const char* const* argv, const std::string& run) {
  const std::string given = last_option(argc, argv, {cat("--", kKey)});
  if (!given.empty()) return limit_in(given);
  const char* variable = std::getenv(kVariable);
  if (variable != nullptr && *variable != '\0') return limit_in(variable);
  std::optional<double> limit;
  for (const std::string& file : all_options(argc, argv, {"--config"})) {
    const auto in_file = limit_in_file(file);
    if (in_file) limit = in_file;
  }
  if (!limit && !run.empty()) limit = limit_in_file(fs::path(run) / "config.toml");
  return limit;
}

/// Returns "runs/first.start" for "runs/first/".
fs::path beside(const std::string& folder) {
  std::error_code code;
  fs::path path = fs::absolute(folder, code).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return code || !path.has_filename() ? fs::path() : fs::path(path.string() + ".start");
}

}  // namespace

std::string last_option(int argc, const char* const* argv, const std::vector<std::string>& names) {
  const std::vector<std::string> values = all_options(argc, argv, names);
  return values.empty() ? "" : values.back();
}

comm::StartLimit start_limit(int argc, const char* const* argv) {
  comm::StartLimit limit;
  const std::string run = last_option(argc, argv, {"--run"});
  limit.timeout_s = timeout_s(argc, argv, run).value_or(limit.timeout_s);
  const std::string folder = run.empty() ? last_option(argc, argv, {"--output", "-o"}) : run;
  if (!folder.empty()) limit.marks = beside(folder);
  return limit;
}

}  // namespace trireme
