# Rules of `cmake --install BUILD --prefix P`. P contains all that the programs and job scripts need, except the C library, libgcc_s,
# the libstdc++ of the system, the GPU driver and MPI. All parts find each other relative to their own directory, so that P can be moved:
#
#   bin/                            trireme, trireme-data, trireme-setup
#   lib/trireme/                    bundled libraries, the module that reads Parquet files; LibTorch and its CUDA libraries in torch/ and nvidia/, as in the wheel
#   share/trireme/                  slurm/, configs/, monitoring/, modulefiles/, libtorch, revision, manifest.txt
#   share/man/man1, share/doc/trireme, share/bash-completion, share/zsh, share/fish

if(NOT TARGET trireme)
  return()  # a build without LibTorch is for tests
endif()

# The directories of LibTorch's wheel with libraries that the programs name. An unpacked LibTorch has only torch/lib.
get_filename_component(torch_directory ${TRIREME_TORCH_DIR} REALPATH)
get_filename_component(torch_packages ${torch_directory} DIRECTORY)
set(install_rpath $ORIGIN/../lib/trireme $ORIGIN/../lib/trireme/torch/lib)
foreach(library ${TRIREME_NCCL_LIBRARY} ${cudart})
  get_filename_component(directory ${library} REALPATH)
  get_filename_component(directory ${directory} DIRECTORY)
  if(directory MATCHES "/nvidia/[^/]+/lib$")
    file(RELATIVE_PATH directory ${torch_packages} ${directory})
    list(APPEND install_rpath $ORIGIN/../lib/trireme/${directory})
  endif()
endforeach()
# The MPI of the build belongs to the site, so its directory comes last.
foreach(library ${MPI_CXX_LIBRARIES})
  get_filename_component(directory ${library} DIRECTORY)
  string(FIND "${directory}/" "${CMAKE_SOURCE_DIR}/" in_checkout)
  if(NOT directory IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND NOT in_checkout EQUAL 0)
    list(APPEND install_rpath ${directory})
  endif()
endforeach()
list(REMOVE_DUPLICATES install_rpath)
set_target_properties(trireme trireme-data PROPERTIES INSTALL_RPATH "${install_rpath}")

# Facts about the LibTorch of the build, for bin/trireme-setup.
file(STRINGS ${torch_version_file} version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" torch_release "${version_lines}")
list(JOIN torch_release "." torch_release)
set(torch_cuda none)
if(TRIREME_TORCH_HAS_CUDA AND cudart MATCHES "\\.so\\.([0-9]+)")
  set(torch_cuda ${CMAKE_MATCH_1})
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TRIREME_CUDA=${torch_cuda} bash -c
          [[case $TRIREME_CUDA in 12 | 13) ;; *) TRIREME_CUDA=13 ;; esac; source bin/lib/packages.sh; echo "$kTorchWheel" "${kPipIndex[@]}"]]
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
  OUTPUT_VARIABLE torch_wheel
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "^([^ ]+) ?(.*)$" "\\1;\\2" torch_wheel "${torch_wheel}")
list(GET torch_wheel 1 torch_index)
list(GET torch_wheel 0 torch_wheel)
set(torch_places ${install_rpath})
list(FILTER torch_places INCLUDE REGEX "/lib/trireme/(torch|nvidia)/")
list(TRANSFORM torch_places REPLACE ".*/lib/trireme/" "")
list(JOIN torch_places " " torch_places)

set(parquet_module "")
if(TRIREME_HAVE_PARQUET)
  set(parquet_module ${CMAKE_BINARY_DIR}/lib/trireme/libtrireme_parquet.so)
endif()

configure_file(${CMAKE_SOURCE_DIR}/src/cmake/install_check.cmake.in install_check.cmake @ONLY)
configure_file(${CMAKE_SOURCE_DIR}/src/cmake/install_files.cmake.in install_files.cmake @ONLY)

install(SCRIPT ${CMAKE_CURRENT_BINARY_DIR}/install_check.cmake)
install(TARGETS trireme trireme-data RUNTIME DESTINATION bin)
install(PROGRAMS bin/trireme-setup DESTINATION bin)
if(TRIREME_HAVE_PARQUET)
  install(TARGETS trireme_parquet LIBRARY DESTINATION lib/trireme)
endif()
install(
  DIRECTORY slurm/
  DESTINATION share/trireme/slurm
  USE_SOURCE_PERMISSIONS
  PATTERN README.md EXCLUDE
  PATTERN configs EXCLUDE
  PATTERN containers EXCLUDE
  PATTERN monitoring EXCLUDE)
install(DIRECTORY slurm/configs slurm/monitoring DESTINATION share/trireme)
install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION share/doc/trireme)
install(DIRECTORY docs DESTINATION share/doc/trireme)
install(SCRIPT ${CMAKE_CURRENT_BINARY_DIR}/install_files.cmake)
