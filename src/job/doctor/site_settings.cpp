#include "job/doctor/site_settings.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "core/error.hpp"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

SiteSettings site_settings(const fs::path& root) {
  std::vector<SettingsFile> candidates{{root / "etc/trireme/env.sh", "site"}};
  const std::string home = variable("HOME");
  if (!home.empty()) candidates.push_back({fs::path(home) / ".config/trireme/env.sh", "user"});
  const std::string named = variable("TRIREME_ENV");
  if (!named.empty()) candidates.push_back({named, "TRIREME_ENV"});

  SiteSettings settings;
  for (const SettingsFile& one : candidates) {
    std::error_code code;
    const bool is_named = one.source == "TRIREME_ENV";
    if (!is_named && !fs::exists(one.path, code)) continue;
    if (fs::is_regular_file(one.path, code) && ::access(one.path.c_str(), R_OK) == 0) {
      settings.files.push_back(one);
      continue;
    }
    settings.findings.push_back(
        {"settings-unreadable", Finding::Severity::error, "",
         formatted("the settings file {} ({}) cannot be read, so job scripts end with 2",
                   one.path.string(), one.source),
         is_named ? "correct or unset TRIREME_ENV" : "make it a readable file, or delete it"});
  }
  return settings;
}

}  // namespace trireme::job
