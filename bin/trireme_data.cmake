add_executable(trireme-data trireme_data.cpp)
target_compile_definitions(trireme-data PRIVATE TRIREME_VERSION="${PROJECT_VERSION}")
target_link_libraries(trireme-data PRIVATE trireme::data_prep)
