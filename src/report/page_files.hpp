#pragma once
#include <span>
#include <string_view>

namespace trireme::report {

/// A part of the HTML file, embedded at build time.
struct PageFile {
  std::string_view path;  // "/" for index.html, "/page/chart.js"
  std::string_view type;
  std::string_view content;
};

/// Returns all files of page/. The build generates this function (src/cmake/embed_page.cmake).
std::span<const PageFile> page_files();

}  // namespace trireme::report
