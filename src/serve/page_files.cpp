#include "serve/page_files.hpp"

#include <algorithm>

namespace trireme {

const PageFile* find_page_file(std::string_view path) {
  const std::span<const PageFile> files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const PageFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

HttpAnswer page_answer(const PageFile& file) {
  return {
      .body = std::string(file.content),
      .content_type = std::string(file.type),
      .headers = {{"Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                   "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'; require-trusted-types-for 'script'"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cross-Origin-Opener-Policy", "same-origin"},
                  {"Cache-Control", "no-cache"}}};
}

}  // namespace trireme
