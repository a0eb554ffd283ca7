# LibTorch, the CUDA runtime and NCCL as imported targets, without find_package(Torch), which demands a CUDA toolkit.
# Sets TRIREME_TORCH_HAS_CUDA, TRIREME_HAVE_NCCL, TRIREME_HAVE_CUDA_KERNELS.

set(TRIREME_TORCH_HAS_CUDA OFF)
set(TRIREME_HAVE_NCCL OFF)
set(TRIREME_HAVE_CUDA_KERNELS OFF)
if(NOT TRIREME_WITH_TORCH)
  return()
endif()

file(GLOB wheel_torch ${CMAKE_SOURCE_DIR}/.deps/python/lib/python3*/site-packages/torch)
find_path(TRIREME_TORCH_DIR include/torch/csrc/api/include/torch/torch.h HINTS ${TRIREME_TORCH_ROOT} ${wheel_torch})
if(NOT TRIREME_TORCH_DIR)
  message(FATAL_ERROR "LibTorch 2.11 not found.\n  bin/demo installs it (pip install torch==2.11.0 into .deps/python)."
                      "\n  Or set TRIREME_TORCH_ROOT to a wheel's torch folder or an unpacked LibTorch.")
endif()
set(TRIREME_TORCH_ROOT ${TRIREME_TORCH_DIR})

file(STRINGS ${TRIREME_TORCH_DIR}/include/torch/headeronly/version.h version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" TRIREME_TORCH_VERSION "${version_lines}")
if(NOT TRIREME_TORCH_VERSION VERSION_EQUAL 2.11)
  message(FATAL_ERROR "LibTorch ${TRIREME_TORCH_VERSION} at ${TRIREME_TORCH_DIR}; this project is built for 2.11.")
endif()

set(site_nvidia ${TRIREME_TORCH_DIR}/../nvidia)  # beside a wheel: the CUDA runtime, NCCL
find_path(TRIREME_CUDA_INCLUDE cuda_runtime_api.h HINTS ${TRIREME_CUDA_ROOT}/include ${site_nvidia}/cu13/include
          PATHS /usr/local/cuda/include)
file(GLOB cudart_files ${TRIREME_CUDA_ROOT}/lib*/libcudart.so* ${site_nvidia}/cu13/lib/libcudart.so*
     /usr/local/cuda/lib64/libcudart.so*)
file(GLOB nccl_files ${TRIREME_NCCL_ROOT}/lib*/libnccl.so* ${site_nvidia}/nccl/lib/libnccl.so*
     /usr/lib/x86_64-linux-gnu/libnccl.so*)
find_path(TRIREME_NCCL_INCLUDE nccl.h HINTS ${TRIREME_NCCL_ROOT}/include ${site_nvidia}/nccl/include)

# -idirafter: the wheel carries its own fmt and protobuf headers, which must not come before the system's.
set(torch_include_flags "")
foreach(dir ${TRIREME_TORCH_DIR}/include ${TRIREME_TORCH_DIR}/include/torch/csrc/api/include)
  list(APPEND torch_include_flags "SHELL:-idirafter ${dir}")
endforeach()

add_library(trireme_dep_torch INTERFACE)
target_compile_options(trireme_dep_torch INTERFACE ${torch_include_flags})
# Registration by static initialisers: the linker must keep the libraries that no symbol of ours names.
target_link_libraries(trireme_dep_torch INTERFACE -Wl,--push-state,--no-as-needed)
set(torch_libraries torch torch_cpu c10)
if(EXISTS ${TRIREME_TORCH_DIR}/lib/libtorch_cuda.so AND TRIREME_CUDA_INCLUDE AND cudart_files)
  set(TRIREME_TORCH_HAS_CUDA ON)
  list(APPEND torch_libraries torch_cuda c10_cuda)
endif()
foreach(library ${torch_libraries})
  target_link_libraries(trireme_dep_torch INTERFACE ${TRIREME_TORCH_DIR}/lib/lib${library}.so)
endforeach()
if(TRIREME_TORCH_HAS_CUDA)
  list(GET cudart_files 0 cudart)
  target_link_libraries(trireme_dep_torch INTERFACE ${cudart})
  target_compile_options(trireme_dep_torch INTERFACE "SHELL:-idirafter ${TRIREME_CUDA_INCLUDE}")
  target_compile_definitions(trireme_dep_torch INTERFACE TRIREME_HAVE_CUDA)
endif()
target_link_libraries(trireme_dep_torch INTERFACE -Wl,--pop-state)
target_link_libraries(trireme_dep_torch INTERFACE Threads::Threads)

if(TRIREME_WITH_NCCL AND TRIREME_TORCH_HAS_CUDA AND nccl_files AND TRIREME_NCCL_INCLUDE)
  set(TRIREME_HAVE_NCCL ON)
  list(GET nccl_files 0 TRIREME_NCCL_LIBRARY)
  add_library(trireme_dep_nccl INTERFACE)
  target_compile_options(trireme_dep_nccl INTERFACE "SHELL:-idirafter ${TRIREME_NCCL_INCLUDE}"
                                                    "SHELL:-idirafter ${TRIREME_CUDA_INCLUDE}")
  list(GET cudart_files 0 cudart)
  target_link_libraries(trireme_dep_nccl INTERFACE ${TRIREME_NCCL_LIBRARY} ${cudart})
endif()

if(TRIREME_WITH_CUDA_KERNELS AND TRIREME_TORCH_HAS_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(TRIREME_HAVE_CUDA_KERNELS ON)
  endif()
endif()

# One precompiled header for all that sees torch/torch.h (20 s a file without it).
target_compile_options(trireme_dep_torch INTERFACE -fpch-preprocess)  # lets ccache see through it
add_library(trireme_torch_pch OBJECT ${CMAKE_SOURCE_DIR}/src/cmake/torch_pch.cpp)
target_link_libraries(trireme_torch_pch PUBLIC trireme_flags trireme_dep_torch)
set_target_properties(trireme_torch_pch PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_precompile_headers(trireme_torch_pch PRIVATE <torch/torch.h>)

# trireme_add_torch_library: as trireme_add_library, for a target whose files include torch.
function(trireme_add_torch_library name)
  trireme_add_library(${name} ${ARGN})
  target_link_libraries(trireme_${name} PUBLIC trireme_dep_torch)
  target_precompile_headers(trireme_${name} REUSE_FROM trireme_torch_pch)
endfunction()
