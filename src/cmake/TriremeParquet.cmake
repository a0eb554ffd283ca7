# Apache Arrow C++ with Parquet, as the target trireme_dep_parquet. Optional: without it, `pack` refuses Parquet files.
# The wheel pyarrow contains the headers, and libraries named libarrow.so.2600, which find_library would not see.
# Sets TRIREME_HAVE_PARQUET and TRIREME_ARROW_VERSION.

set(TRIREME_HAVE_PARQUET OFF)
set(TRIREME_ARROW_VERSION "")
if(NOT TRIREME_PARQUET MATCHES "^(auto|on|off|ON|OFF)$")
  message(FATAL_ERROR "TRIREME_PARQUET is ${TRIREME_PARQUET}. It must be auto, on or off.")
endif()
if(TRIREME_PARQUET MATCHES "^(off|OFF)$")
  return()
endif()

set(arrow_header parquet/arrow/reader.h)
if(NOT TRIREME_ARROW_FROM STREQUAL "${TRIREME_ARROW_ROOT}")
  unset(TRIREME_ARROW_INCLUDE CACHE)  # the last configure had another root
endif()
set(TRIREME_ARROW_FROM "${TRIREME_ARROW_ROOT}" CACHE INTERNAL "the root that TRIREME_ARROW_INCLUDE was found with")
if(TRIREME_ARROW_ROOT)
  find_path(TRIREME_ARROW_INCLUDE ${arrow_header} PATHS ${TRIREME_ARROW_ROOT} PATH_SUFFIXES include NO_DEFAULT_PATH)
else()
  file(GLOB wheel_arrow ${CMAKE_SOURCE_DIR}/.deps/python/lib/python3*/site-packages/pyarrow)
  find_path(TRIREME_ARROW_INCLUDE ${arrow_header} HINTS ${wheel_arrow} PATH_SUFFIXES include)
endif()

include(TriremeFirstLibrary)

set(arrow_problem "")
if(NOT TRIREME_ARROW_INCLUDE)
  set(arrow_problem "${arrow_header} was not found")
else()
  file(STRINGS ${TRIREME_ARROW_INCLUDE}/arrow/util/config.h arrow_line REGEX "define ARROW_VERSION_STRING ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" TRIREME_ARROW_VERSION "${arrow_line}")
  # A prefix has its libraries in lib or lib64, a wheel in its own directory.
  get_filename_component(arrow_prefix ${TRIREME_ARROW_INCLUDE} DIRECTORY)
  trireme_first_library(arrow_file libarrow ${arrow_prefix})
  trireme_first_library(parquet_file libparquet ${arrow_prefix})
  if(TRIREME_ARROW_VERSION VERSION_LESS 26)
    set(arrow_problem "Arrow in ${TRIREME_ARROW_INCLUDE} has version ${TRIREME_ARROW_VERSION}, must be 26 or newer")
  elseif(NOT arrow_file OR NOT parquet_file)
    set(arrow_problem "libarrow or libparquet is not beside ${TRIREME_ARROW_INCLUDE}")
  endif()
endif()
if(arrow_problem)
  if(TRIREME_PARQUET MATCHES "^(on|ON)$")
    message(FATAL_ERROR "TRIREME_PARQUET is on, but ${arrow_problem}."
                        "\n  Install it: .deps/python/bin/python -m pip install pyarrow==26.0.1 (bin/test does it)."
                        "\n  Or set TRIREME_ARROW_ROOT to a wheel's pyarrow directory or a prefix of Arrow.")
  endif()
  return()
endif()

set(TRIREME_HAVE_PARQUET ON)
add_library(trireme_dep_parquet INTERFACE)
target_include_directories(trireme_dep_parquet SYSTEM INTERFACE ${TRIREME_ARROW_INCLUDE})
target_link_libraries(trireme_dep_parquet INTERFACE ${parquet_file} ${arrow_file})
