#pragma once
#include <filesystem>
#include <string_view>

#include "core/error.hpp"

/// Maps errno of a refused file operation to an ErrorKind, and so to the exit code that decides if
/// the job scripts retry. This is the only such mapping.
///
///   resource (4)  the machine lacks something or is broken; a retry may succeed: space or quota,
///                 descriptors, memory, threads, a file-size limit, an I/O error, an unavailable
///                 network file system
///   usage (2)     the file cannot be written, however often it is tried: no such directory, no
///                 permission, a read-only file system, a name too long, or the name is taken
///   data (3)      the file to read is absent, forbidden or not a file
///
/// The mapping is the same during a run: a directory that was deleted or made read-only would
/// refuse the next start, too. Errors in configuration files (--config, a plan of --data) are
/// always usage.
namespace trireme {

enum class Access { read, write };

ErrorKind kind_of_errno(Access access, int error_number) noexcept;

/// Throw "cannot WHAT PATH: No such file or directory" of the mapped kind. If the kind is usage, a
/// write error also says what to do. `error_number` is errno or the value of a std::error_code.
[[noreturn]] void fail_to_read(std::string_view what, const std::filesystem::path& path,
                               int error_number);
[[noreturn]] void fail_to_write(std::string_view what, const std::filesystem::path& path,
                                int error_number);

/// Throws Error(usage) if `path`, which is to be replaced, is a device, a pipe or a socket.
void check_replaceable(const std::filesystem::path& path);

/// Converts the exception in flight to Error (call it inside a catch handler). std::bad_alloc and
/// errors of the machine become `resource`. Other std::filesystem errors count as reads, because
/// writes convert their own errors. Anything else becomes `internal`.
Error current_error();

}  // namespace trireme
