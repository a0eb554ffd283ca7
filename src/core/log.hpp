#pragma once
#include <string>
#include <string_view>

/// Log functions on top of spdlog, which only log.cpp includes. Lines go to stderr as `2026-01-31
/// 12:00:00.000 info [rank 3] message`. Rank 0 logs from `level` on, other ranks from `warn` on.
/// All functions may be called from any thread, also before init() (as rank 0 at level info).
namespace trireme::log {

enum class Level { debug, info, warn, error, off };

struct Config {
  int rank = 0;
  int size = 1;
  Level level = Level::info;
  std::string file{};  // if set, this rank also logs everything from `level` on to the file
};

/// Throws Error(resource) if `file` cannot be written.
void init(const Config& config);
void debug(std::string_view message);
void info(std::string_view message);
void warn(std::string_view message);
void error(std::string_view message);
void flush();

}  // namespace trireme::log
