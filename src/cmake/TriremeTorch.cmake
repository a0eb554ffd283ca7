# LibTorch, the CUDA runtime and NCCL as imported targets, without find_package(Torch), which demands a CUDA toolkit.
# Sets TRIREME_TORCH_HAS_CUDA and TRIREME_HAVE_NCCL.

set(TRIREME_TORCH_HAS_CUDA OFF)
set(TRIREME_HAVE_NCCL OFF)
if(NOT TRIREME_WITH_TORCH)
  return()
endif()

# LibTorch: a place that is named must hold it; else the private environment, then the standard places.
set(torch_header include/torch/csrc/api/include/torch/torch.h)
if(NOT TRIREME_TORCH_DIR_FROM STREQUAL "${TRIREME_TORCH_ROOT}")
  unset(TRIREME_TORCH_DIR CACHE)  # another root than at the last configure
  unset(TRIREME_CUDA_INCLUDE CACHE)
  unset(TRIREME_CUDA_CRT_INCLUDE CACHE)
  unset(TRIREME_CUDA_CCCL_INCLUDE CACHE)
  unset(TRIREME_NCCL_INCLUDE CACHE)
endif()
set(TRIREME_TORCH_DIR_FROM "${TRIREME_TORCH_ROOT}" CACHE INTERNAL "the root that TRIREME_TORCH_DIR was found with")
if(TRIREME_TORCH_ROOT)
  find_path(TRIREME_TORCH_DIR ${torch_header} PATHS ${TRIREME_TORCH_ROOT} PATH_SUFFIXES torch NO_DEFAULT_PATH)
else()
  file(GLOB wheel_torch ${CMAKE_SOURCE_DIR}/.deps/python/lib/python3*/site-packages/torch)
  find_path(TRIREME_TORCH_DIR ${torch_header} HINTS ${wheel_torch})
endif()
if(NOT TRIREME_TORCH_DIR)
  message(FATAL_ERROR "LibTorch 2.11 not found (TRIREME_TORCH_ROOT is '${TRIREME_TORCH_ROOT}')."
                      "\n  bin/demo installs it (pip install torch==2.11.0 into .deps/python)."
                      "\n  Or set TRIREME_TORCH_ROOT to a wheel's torch folder or an unpacked LibTorch.")
endif()

set(TRIREME_TORCH_VERSION unknown)
set(torch_version_file ${TRIREME_TORCH_DIR}/include/torch/headeronly/version.h)
if(EXISTS ${torch_version_file})
  file(STRINGS ${torch_version_file} version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" TRIREME_TORCH_VERSION "${version_lines}")
endif()
if(NOT TRIREME_TORCH_VERSION VERSION_EQUAL 2.11)
  message(FATAL_ERROR "LibTorch at ${TRIREME_TORCH_DIR} has version ${TRIREME_TORCH_VERSION}, must be 2.11."
                      "\n  Set TRIREME_TORCH_ROOT to another one, or let bin/demo install torch==2.11.0.")
endif()

# The CUDA runtime and NCCL: a named root, then beside the wheel (nvidia/cu13; nvidia/cuda_runtime in CUDA 12 builds),
# then a site's toolkit. An unpacked LibTorch brings its own libcudart (with a hash in its name) but no headers.
get_filename_component(site_packages ${TRIREME_TORCH_DIR} REALPATH)
get_filename_component(site_packages ${site_packages} DIRECTORY)
file(GLOB cuda_prefixes ${site_packages}/nvidia/cu[0-9]* ${site_packages}/nvidia/cuda_runtime
     ${site_packages}/nvidia/cuda_nvcc ${site_packages}/nvidia/cuda_cccl)
set(cuda_prefixes ${TRIREME_CUDA_ROOT} ${cuda_prefixes} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
set(nccl_prefixes ${TRIREME_NCCL_ROOT} ${site_packages}/nvidia/nccl $ENV{NCCL_HOME} ${cuda_prefixes} /usr)
find_path(TRIREME_CUDA_INCLUDE cuda_runtime_api.h PATHS ${cuda_prefixes} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(TRIREME_NCCL_INCLUDE nccl.h PATHS ${nccl_prefixes} PATH_SUFFIXES include NO_DEFAULT_PATH)

# The headers that cuda_runtime_api.h includes come in a wheel of its own since CUDA 13; a toolkit has both.
find_path(TRIREME_CUDA_CRT_INCLUDE crt/host_defines.h PATHS ${TRIREME_CUDA_INCLUDE} ${cuda_prefixes} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(TRIREME_CUDA_CRT_INCLUDE crt/host_defines.h)
set(cuda_include_flags "SHELL:-idirafter ${TRIREME_CUDA_INCLUDE}")
if(NOT TRIREME_CUDA_CRT_INCLUDE STREQUAL TRIREME_CUDA_INCLUDE)
  list(APPEND cuda_include_flags "SHELL:-idirafter ${TRIREME_CUDA_CRT_INCLUDE}")
endif()
if(TRIREME_CUDA_INCLUDE AND NOT TRIREME_CUDA_CRT_INCLUDE)
  message(WARNING "${TRIREME_CUDA_INCLUDE}/cuda_runtime_api.h needs crt/host_defines.h, which was not found: building without CUDA."
                  "\n  Install the wheel nvidia-cuda-crt beside LibTorch (bin/demo does it), or set TRIREME_CUDA_ROOT to a toolkit.")
endif()

include(TriremeFirstLibrary)
trireme_first_library(cudart libcudart-* ${TRIREME_TORCH_DIR})  # one runtime in the process: LibTorch's own
if(NOT cudart)
  trireme_first_library(cudart libcudart ${cuda_prefixes})
endif()
trireme_first_library(TRIREME_NCCL_LIBRARY libnccl ${nccl_prefixes})
if(TRIREME_CUDA_INCLUDE AND cudart MATCHES "\\.so\\.([0-9]+)")
  set(runtime_major ${CMAKE_MATCH_1})
  file(STRINGS ${TRIREME_CUDA_INCLUDE}/cuda_runtime_api.h cudart_version REGEX "define CUDART_VERSION +[0-9]+")
  string(REGEX REPLACE ".*CUDART_VERSION +([0-9]+)[0-9][0-9][0-9].*" "\\1" header_major "${cudart_version}")
  if(NOT header_major STREQUAL runtime_major)
    message(FATAL_ERROR "CUDA headers of version ${header_major} (${TRIREME_CUDA_INCLUDE}) with a runtime of version "
                        "${runtime_major} (${cudart}).\n  Set TRIREME_CUDA_ROOT to a CUDA ${runtime_major} with headers.")
  endif()
endif()

# -idirafter: the wheel carries its own fmt and protobuf headers, which must not come before the system's.
set(torch_include_flags "")
foreach(dir ${TRIREME_TORCH_DIR}/include ${TRIREME_TORCH_DIR}/include/torch/csrc/api/include)
  list(APPEND torch_include_flags "SHELL:-idirafter ${dir}")
endforeach()

add_library(trireme_dep_torch INTERFACE)
target_compile_options(trireme_dep_torch INTERFACE ${torch_include_flags})
# libtorch exports std::filesystem functions of another compiler's libstdc++; its remove_all, called with our types, jumps
# to address 0. The system's libstdc++ comes first, as an option, because those stand before all libraries.
target_link_options(trireme_dep_torch INTERFACE "SHELL:-Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state")
# Registration by static initialisers: the linker must keep the libraries that no symbol of ours names.
target_link_libraries(trireme_dep_torch INTERFACE -Wl,--push-state,--no-as-needed)
set(torch_libraries torch_cpu c10)
if(EXISTS ${TRIREME_TORCH_DIR}/lib/libtorch_cuda.so AND TRIREME_CUDA_INCLUDE AND TRIREME_CUDA_CRT_INCLUDE AND cudart)
  set(TRIREME_TORCH_HAS_CUDA ON)
  list(APPEND torch_libraries c10_cuda)  # not torch_cuda: src/device/cuda_library.cpp loads it where there is a driver
endif()
foreach(library ${torch_libraries})
  target_link_libraries(trireme_dep_torch INTERFACE ${TRIREME_TORCH_DIR}/lib/lib${library}.so)
endforeach()
if(TRIREME_TORCH_HAS_CUDA)
  target_link_libraries(trireme_dep_torch INTERFACE ${cudart})
  target_compile_options(trireme_dep_torch INTERFACE ${cuda_include_flags})
  target_compile_definitions(trireme_dep_torch INTERFACE TRIREME_HAVE_CUDA)
endif()
target_link_libraries(trireme_dep_torch INTERFACE -Wl,--pop-state)
target_link_libraries(trireme_dep_torch INTERFACE Threads::Threads)
# at::parallel_for is a header's: without OpenMP in our own files it runs on one thread. One runtime in the process, LibTorch's
# own, has one set of threads. Not for the thread sanitizer: it does not see how OpenMP's threads wait for one another.
if(NOT TRIREME_SANITIZE MATCHES thread)
  target_compile_options(trireme_dep_torch INTERFACE -fopenmp)
  trireme_first_library(gomp libgomp* ${TRIREME_TORCH_DIR})
  if(gomp AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_link_libraries(trireme_dep_torch INTERFACE ${gomp})
  else()
    target_link_options(trireme_dep_torch INTERFACE -fopenmp)
  endif()
endif()

# nccl.h includes cuda_fp16.h, which includes nv/target. The wheels have this header in a package of its own, toolkits in include/cccl.
find_path(TRIREME_CUDA_CCCL_INCLUDE nv/target PATHS ${TRIREME_CUDA_INCLUDE} ${cuda_prefixes} PATH_SUFFIXES include include/cccl cccl NO_DEFAULT_PATH)
find_path(TRIREME_CUDA_CCCL_INCLUDE nv/target)
if(TRIREME_WITH_NCCL AND TRIREME_TORCH_HAS_CUDA AND TRIREME_NCCL_INCLUDE AND NOT TRIREME_CUDA_CCCL_INCLUDE)
  message(WARNING "${TRIREME_NCCL_INCLUDE}/nccl.h needs nv/target, which was not found: building without NCCL."
                  "\n  Install the wheel nvidia-cuda-cccl beside LibTorch (bin/demo does it), or set TRIREME_CUDA_ROOT to a toolkit.")
elseif(TRIREME_WITH_NCCL AND TRIREME_TORCH_HAS_CUDA AND TRIREME_NCCL_LIBRARY AND TRIREME_NCCL_INCLUDE)
  set(TRIREME_HAVE_NCCL ON)
  if(NOT TRIREME_CUDA_CCCL_INCLUDE STREQUAL TRIREME_CUDA_INCLUDE)
    list(APPEND cuda_include_flags "SHELL:-idirafter ${TRIREME_CUDA_CCCL_INCLUDE}")
  endif()
  add_library(trireme_dep_nccl INTERFACE)
  target_compile_options(trireme_dep_nccl INTERFACE "SHELL:-idirafter ${TRIREME_NCCL_INCLUDE}" ${cuda_include_flags})
  target_link_libraries(trireme_dep_nccl INTERFACE ${TRIREME_NCCL_LIBRARY} ${cudart})
endif()

# One precompiled header for all that sees LibTorch (20 s a file without it). torch/torch.h would add 4 s to every file: what
# it leaves to instantiate is instantiated anew in each.
set(TRIREME_TORCH_HEADERS <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <nlohmann/json.hpp>)
trireme_add_pch(
  trireme_torch_pch
  HEADERS ${TRIREME_TORCH_HEADERS}
  LINKS trireme_dep_torch trireme_dep_json
  OPTIONS -fPIC)

# trireme_use_torch_pch(TARGET [PCH]): for a target that includes torch, with the precompiled header above or another one.
# -fPIC and not -fPIE, as the precompiled header was made.
function(trireme_use_torch_pch target)
  set(pch trireme_torch_pch)
  if(ARGN)
    set(pch ${ARGN})
  endif()
  target_compile_options(${target} PRIVATE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

# trireme_add_torch_library: like trireme_add_library, for files that include torch.
function(trireme_add_torch_library name)
  trireme_add_library(${name} NO_PCH ${ARGN})
  target_link_libraries(trireme_${name} PUBLIC trireme_dep_torch)
  trireme_use_torch_pch(trireme_${name})
endfunction()
