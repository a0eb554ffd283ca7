# Flags of every target of ours, and the function that declares one.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths count relative to the checkout, so that another clone finds the same objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1
                                  CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE})
endif()

add_library(trireme_flags INTERFACE)
target_include_directories(trireme_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_options(trireme_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
                                               -Woverloaded-virtual)
target_compile_definitions(trireme_flags INTERFACE OMPI_SKIP_MPICXX)
if(TRIREME_WERROR)
  target_compile_options(trireme_flags INTERFACE -Werror)
endif()
if(TRIREME_AUDIT)
  target_compile_definitions(trireme_flags INTERFACE TRIREME_AUDIT)
endif()
if(TRIREME_SANITIZE)
  string(REPLACE "," ";" sanitizers "${TRIREME_SANITIZE}")
  foreach(sanitizer ${sanitizers})
    if(sanitizer STREQUAL undefined)
      # Undefined behavior is checked in what is tested, not in the tests (property TRIREME_IS_TEST), because it doubles the time
      # of their compilation. Three of its checks cost a quarter of the compilation, and the address sanitizer reports most of
      # what they find.
      set(checked $<NOT:$<BOOL:$<TARGET_PROPERTY:TRIREME_IS_TEST>>>)
      foreach(option -fsanitize=undefined -fno-sanitize=null -fno-sanitize=vptr -fno-sanitize=object-size)
        target_compile_options(trireme_flags INTERFACE $<${checked}:${option}>)
      endforeach()
    else()
      target_compile_options(trireme_flags INTERFACE -fsanitize=${sanitizer})
    endif()
  endforeach()
  target_compile_options(trireme_flags INTERFACE -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()

# Headers cost more than most files' code, so a few files of a program are one compilation: names of them must differ.
function(trireme_compile_together target)
  if(TRIREME_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

# For what gives orders and is not waited for itself (commands, configuration, servers' words, the loop around steps):
# -O1 compiles in three quarters of the time.
function(trireme_optimize_little)
  foreach(target ${ARGN})
    if(TRIREME_SANITIZE MATCHES address)
      # Its checks take twice as long to compile at -O1. Headers that were precompiled at -O1 do not fit -O0.
      target_compile_options(${target} PRIVATE -O0)
      set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
    else()
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
  endforeach()
endfunction()

# Precompiles the headers that most files include: trireme_add_pch(NAME HEADERS <h> ... LINKS dep ... OPTIONS -x ...). A target that uses it
# (trireme_use_pch) must have the same options. Every file still names what it needs: TRIREME_UNITY=OFF compiles without.
set(TRIREME_COMMON_HEADERS <algorithm> <array> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <optional> <ostream> <span>
                           <string> <string_view> <vector> <nlohmann/json.hpp>)
function(trireme_add_pch name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINKS;OPTIONS" ${ARGN})
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/src/cmake/precompiled.cpp)
  target_link_libraries(${name} PUBLIC trireme_flags ${ARG_LINKS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS} $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # lets ccache see through it
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

function(trireme_use_pch target name)
  if(TRIREME_UNITY)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# trireme_add_library(NAME SOURCES a.cpp ... LINKS trireme::core ...): a static library trireme_NAME, alias trireme::NAME.
# Sources are listed by hand; a target links only to those below it (tests/unit/layering reads the include lines).
function(trireme_add_library name)
  cmake_parse_arguments(ARG "NO_PCH" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(trireme_${name} STATIC ${ARG_SOURCES})
  add_library(trireme::${name} ALIAS trireme_${name})
  set_target_properties(trireme_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(TRIREME_UNITY)
    # The files of a directory compile together, because their shared headers cost more time than the code.
    set_target_properties(trireme_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    foreach(source ${ARG_SOURCES})
      get_filename_component(folder ${source} DIRECTORY)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${name}_${folder}")
    endforeach()
  endif()
  target_link_libraries(trireme_${name} PUBLIC trireme_flags ${ARG_LINKS} PRIVATE ${ARG_PRIVATE_LINKS})
  if(NOT ARG_NO_PCH)
    trireme_use_pch(trireme_${name} trireme_pch)
  endif()
endfunction()
