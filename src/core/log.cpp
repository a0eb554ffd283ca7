#include "core/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/escape.hpp"

namespace trireme::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  constexpr std::array kMap{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                            spdlog::level::err, spdlog::level::off};
  return kMap[static_cast<std::size_t>(level)];
}

std::shared_ptr<spdlog::logger> make_logger(const Config& config) {
  auto screen = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  screen->set_level(config.rank == 0 ? to_spdlog(config.level)
                                     : std::max(spdlog::level::warn, to_spdlog(config.level)));
  std::vector<spdlog::sink_ptr> sinks{screen};
  if (!config.file.empty()) {
    sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(config.file));
    sinks.back()->set_level(to_spdlog(config.level));
  }
  auto logger = std::make_shared<spdlog::logger>("trireme", sinks.begin(), sinks.end());
  logger->set_level(to_spdlog(config.level));
  logger->set_pattern(config.size > 1
                          ? formatted("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ [rank {}] %v", config.rank)
                          : "%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
  logger->flush_on(spdlog::level::warn);
  return logger;
}

/// Returns the current logger; `next` replaces it first.
std::shared_ptr<spdlog::logger> logger(std::shared_ptr<spdlog::logger> next = nullptr) {
  static std::mutex mutex;
  static std::shared_ptr<spdlog::logger> instance = make_logger({});
  const std::lock_guard lock(mutex);
  if (next) instance = std::move(next);
  return instance;
}

}  // namespace

void init(const Config& config) {
  try {
    logger(make_logger(config));
  } catch (const spdlog::spdlog_ex& error) {
    fail(ErrorKind::resource, "cannot log to {}: {}", config.file, error.what());
  }
}

void debug(std::string_view message) {
  logger()->debug(escape_controls(message));
}

void info(std::string_view message) {
  logger()->info(escape_controls(message));
}

void warn(std::string_view message) {
  logger()->warn(escape_controls(message));
}

void error(std::string_view message) {
  logger()->error(escape_controls(message));
}

void flush() {
  logger()->flush();
}

}  // namespace trireme::log
