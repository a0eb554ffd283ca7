#include "core/terminal/terminal.hpp"

#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>

namespace trireme {

Terminals terminals() noexcept {
  return {::isatty(STDIN_FILENO) == 1, ::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1};
}

bool use_utf8_locale() noexcept {
  for (const char* name : {"", "C.UTF-8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) != nullptr &&
        std::string_view(::nl_langinfo(CODESET)) == "UTF-8")
      return true;
  }
  return false;
}

bool may_use_colors() noexcept {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return terminals().output && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

}  // namespace trireme
