# Imported targets: trireme_dep_{mpi,hdf5,json,toml,cli,log,simdjson,xxhash,crypto,zstd,zlib,boost,libedit,parquet,torch,nccl}.
#
# Every root can be given as -DTRIREME_<NAME>_ROOT=DIR or as an environment variable of that name:
#   TORCH  the `torch` directory of a Python wheel or an unpacked LibTorch, 2.11, any CUDA build or CPU
#   CUDA   the CUDA runtime (include/cuda_runtime_api.h, lib/libcudart.so*)
#   NCCL   include/nccl.h and lib/libnccl.so*
#   MPI, HDF5  installation prefixes
#   ARROW  a Python wheel's `pyarrow` directory or a prefix of Apache Arrow C++ with Parquet, 26 or newer
# Defaults: the private environment that bin/demo makes (.deps/python), then the system.

foreach(name TORCH CUDA NCCL MPI HDF5 ARROW)
  if(NOT TRIREME_${name}_ROOT AND DEFINED ENV{TRIREME_${name}_ROOT})
    set(TRIREME_${name}_ROOT $ENV{TRIREME_${name}_ROOT})
  endif()
  set(TRIREME_${name}_ROOT "${TRIREME_${name}_ROOT}" CACHE PATH "Where ${name} is, if not in a standard place")
endforeach()

find_package(Threads REQUIRED)

# trireme_missing(WHAT DEBIAN_PACKAGE ROOT_VARIABLE): one clear error for an absent dependency
function(trireme_missing what package variable)
  message(FATAL_ERROR "${what} not found.\n  With root: apt-get install ${package} (bin/demo does it)."
                      "\n  Without: set ${variable} (see docs/install.md, 'Without root').")
endfunction()

# trireme_look_for(TARGET HEADER [LIBRARY...]): an interface target from a header and libraries. TARGET_ABSENT: the first of
# them that is not there, or empty.
function(trireme_look_for target header)
  add_library(${target} INTERFACE)
  set(absent "")
  find_path(${target}_INCLUDE ${header} HINTS ENV CPATH ENV CPLUS_INCLUDE_PATH)
  if(${target}_INCLUDE)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE})
  else()
    set(absent ${header})
  endif()
  foreach(library ${ARGN})
    find_library(${target}_${library} ${library} HINTS ENV LIBRARY_PATH ENV LD_LIBRARY_PATH)
    if(${target}_${library})
      target_link_libraries(${target} INTERFACE ${${target}_${library}})
    elseif(NOT absent)
      set(absent lib${library})
    endif()
  endforeach()
  set(${target}_ABSENT "${absent}" PARENT_SCOPE)
endfunction()

# trireme_find_headers(TARGET WHAT PACKAGE HEADER [LIBRARY...]): the same of what must be there
function(trireme_find_headers target what package)
  trireme_look_for(${target} ${ARGN})
  if(${target}_ABSENT)
    trireme_missing("${what} (${${target}_ABSENT})" ${package} CMAKE_PREFIX_PATH)
  endif()
endfunction()

trireme_find_headers(trireme_dep_json "nlohmann-json" nlohmann-json3-dev nlohmann/json.hpp)
trireme_add_pch(trireme_pch HEADERS ${TRIREME_COMMON_HEADERS} LINKS trireme_dep_json OPTIONS -fPIC)
trireme_find_headers(trireme_dep_toml "toml++" libtomlplusplus-dev toml++/toml.h)
trireme_find_headers(trireme_dep_cli "CLI11" libcli11-dev CLI/CLI.hpp)
trireme_find_headers(trireme_dep_xxhash "xxHash" libxxhash-dev xxhash.h xxhash)
trireme_find_headers(trireme_dep_crypto "libcrypto" libssl-dev openssl/evp.h crypto)
trireme_find_headers(trireme_dep_simdjson "simdjson" libsimdjson-dev simdjson.h simdjson)
trireme_find_headers(trireme_dep_zstd "zstd" libzstd-dev zstd.h zstd)
trireme_find_headers(trireme_dep_boost "Boost.Beast" libboost-dev boost/beast/http.hpp)
trireme_find_headers(trireme_dep_zlib "zlib" zlib1g-dev zlib.h z)

# Optional: without it `trireme chat` reads lines as the terminal gives them.
trireme_look_for(trireme_dep_libedit histedit.h edit)
set(TRIREME_HAVE_LIBEDIT OFF)
if(NOT trireme_dep_libedit_ABSENT)
  set(TRIREME_HAVE_LIBEDIT ON)
  target_compile_definitions(trireme_dep_libedit INTERFACE TRIREME_HAVE_LIBEDIT)
endif()

find_package(spdlog QUIET)
if(NOT spdlog_FOUND)
  trireme_missing("spdlog" libspdlog-dev CMAKE_PREFIX_PATH)
endif()
add_library(trireme_dep_log INTERFACE)
# Without libspdlog.so, which needs a newer libstdc++ than the programs (bin/CMakeLists.txt). One file includes the headers.
target_link_libraries(trireme_dep_log INTERFACE spdlog::spdlog_header_only)

if(TRIREME_HDF5_ROOT)
  set(HDF5_ROOT ${TRIREME_HDF5_ROOT})
endif()
set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 QUIET COMPONENTS C)
if(NOT HDF5_FOUND)
  trireme_missing("HDF5 (serial, C library)" libhdf5-dev TRIREME_HDF5_ROOT)
endif()
add_library(trireme_dep_hdf5 INTERFACE)
target_include_directories(trireme_dep_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(trireme_dep_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

if(TRIREME_WITH_MPI)
  if(TRIREME_MPI_ROOT)
    set(MPI_HOME ${TRIREME_MPI_ROOT})
    # FindMPI reads MPI_HOME last, so that another mpicxx in PATH or CMAKE_PREFIX_PATH would win.
    set(other_places CMAKE_PATH CMAKE_ENVIRONMENT_PATH SYSTEM_ENVIRONMENT_PATH CMAKE_SYSTEM_PATH)
    foreach(place ${other_places})
      set(CMAKE_FIND_USE_${place} FALSE)
    endforeach()
  endif()
  set(MPI_DETERMINE_LIBRARY_VERSION TRUE)  # for --version
  find_package(MPI QUIET COMPONENTS CXX)
  foreach(place ${other_places})
    unset(CMAKE_FIND_USE_${place})
  endforeach()
  if(NOT MPI_CXX_FOUND)
    trireme_missing("MPI (OpenMPI)" "libopenmpi-dev openmpi-bin" TRIREME_MPI_ROOT)
  endif()
  add_library(trireme_dep_mpi INTERFACE)
  target_include_directories(trireme_dep_mpi SYSTEM INTERFACE ${MPI_CXX_INCLUDE_DIRS})
  target_link_libraries(trireme_dep_mpi INTERFACE ${MPI_CXX_LIBRARIES})
endif()

include(TriremeParquet)
include(TriremeTorch)
