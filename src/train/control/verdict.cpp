#include "train/control/verdict.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/folders.hpp"
#include "core/files/json.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

/// "2026-01-31T12:00:00.123Z"
std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milli =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(milli));
  return text.data();
}

}  // namespace

void write_verdict(const RunFolder& folder, const Verdict& verdict) noexcept {
  try {
    std::error_code ignored;
    std::filesystem::create_directory(folder.verdicts(), ignored);
    const Json json{
        {"rank", verdict.rank}, {"host", verdict.host},           {"pid", ::getpid()},
        {"kind", verdict.kind}, {"exit_code", verdict.exit_code}, {"step", verdict.step},
        {"time", utc_now()},    {"message", verdict.message}};
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    write_file_atomic(folder.verdicts() / rank_file(verdict.rank, ".json"), text);
  } catch (const std::exception& error) {
    log::warn(formatted("no verdict is left: {}", error.what()));
  }
}

void clear_verdicts(const RunFolder& folder) {
  remove_tree(folder.verdicts());
}

}  // namespace trireme
