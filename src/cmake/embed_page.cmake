# cmake -DMODULE=serve -DFOLDER=... -DFILES=a.html,b.js -DOUTPUT=... -P embed_page.cmake: the page's files as a C++ table of MODULE.
# index.html is served at /, the others at /page/NAME.
string(REPLACE "," ";" names "${FILES}")
set(rows "")
foreach(name ${names})
  file(READ ${FOLDER}/${name} content)
  if(content MATCHES "\\)page\"")
    message(FATAL_ERROR "${name} holds what ends a text in the table")
  endif()
  set(path /page/${name})
  if(name STREQUAL "index.html")
    set(path /)
  endif()
  if(name MATCHES "\\.html$")
    set(type text/html)
  elseif(name MATCHES "\\.css$")
    set(type text/css)
  elseif(name MATCHES "\\.js$")
    set(type text/javascript)
  else()
    set(type image/svg+xml)
  endif()
  string(APPEND rows "    {\"${path}\", \"${type}; charset=utf-8\",\n     R\"page(${content})page\"},\n")
endforeach()
file(WRITE ${OUTPUT}
     "#include \"${MODULE}/page_files.hpp\"\n\n#include <array>\n\nnamespace trireme::${MODULE} {\n\n"
     "std::span<const PageFile> page_files() {\n  static constexpr auto files = std::to_array<PageFile>({\n${rows}  });\n"
     "  return files;\n}\n\n}  // namespace trireme::${MODULE}\n")
