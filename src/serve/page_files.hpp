#pragma once
#include <span>
#include <string_view>

#include "http/http_message.hpp"

namespace trireme {

/// A file of the web page, as it was when the program was built.
struct PageFile {
  std::string_view path;  // "/", "/page/app.js"
  std::string_view type;  // "text/html; charset=utf-8"
  std::string_view content;
};

/// All of them; the build writes it (src/cmake/embed_page.cmake).
std::span<const PageFile> page_files();

/// Null if the page has no such file. Exact paths only: nothing is read from a disk.
const PageFile* find_page_file(std::string_view path);

/// The file with the headers that keep a page from loading anything but itself.
HttpAnswer page_answer(const PageFile& file);

}  // namespace trireme
