add_executable(
  trireme-data
  trireme_data.cpp
  run_command.cpp
  start_limit.cpp
  version.cpp
  trireme_data/bench_commands.cpp
  trireme_data/import_command.cpp
  trireme_data/inspect_commands.cpp
  trireme_data/pack_command.cpp
  trireme_data/tokenizer_commands.cpp)
trireme_program(trireme-data)
target_link_libraries(trireme-data PRIVATE trireme::data_prep)
trireme_compile_together(trireme-data)
trireme_optimize_little(trireme-data)
target_compile_options(trireme-data PRIVATE -fPIC)  # not -fPIE: the precompiled header needs -fPIC
trireme_use_pch(trireme-data trireme_pch)
