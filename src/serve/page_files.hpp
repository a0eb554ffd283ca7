#pragma once
#include <span>
#include <string_view>

namespace trireme::serve {

/// A file of the web page, embedded at build time.
struct PageFile {
  std::string_view path;  // "/", "/page/app.js"
  std::string_view type;  // "text/html; charset=utf-8"
  std::string_view content;
};

/// Returns all files. The build generates this function (src/cmake/embed_page.cmake).
std::span<const PageFile> page_files();

}  // namespace trireme::serve
