#pragma once
#include <span>
#include <string_view>

namespace trireme {

/// A file of the web page, as it was when the program was built.
struct PageFile {
  std::string_view path;  // "/", "/page/app.js"
  std::string_view type;  // "text/html; charset=utf-8"
  std::string_view content;
};

/// All of them; the build writes it (src/cmake/embed_page.cmake).
std::span<const PageFile> page_files();

}  // namespace trireme
