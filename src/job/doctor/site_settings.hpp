#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "job/doctor/findings.hpp"

namespace trireme::job {

/// A file with settings that the job scripts read.
struct SettingsFile {
  std::filesystem::path path;
  std::string source;  // "site", "user" or "TRIREME_ENV"
};

/// The settings files of the job scripts of one installation.
struct SiteSettings {
  std::vector<SettingsFile> files;  // those that exist, in reading order: later files win
  std::vector<Finding> findings;    // files that cannot be read
};

/// Finds the settings files for the job scripts of the prefix or checkout `root`, as the function
/// read_settings of slurm/lib/settings.sh does.
SiteSettings site_settings(const std::filesystem::path& root);

}  // namespace trireme::job
