#pragma once
#include <filesystem>
#include <string_view>

#include "core/error.hpp"

/// What it means that the system refuses a file: the one place where errno becomes a kind, and so
/// the exit code that decides whether the job scripts try again.
///
///   resource (4)  the machine is short of something or broken, another try may go well: space or
///                 quota, descriptors, memory, threads, a file-size limit, an I/O error, a network
///                 file system that is away
///   usage (2)     what is to be written cannot be there, however often it is tried: no such
///                 folder, no permission, a read-only file system, a name too long; or it is taken
///   data (3)      what is to be read is absent, forbidden, or another kind of thing
///
/// The same in the middle of a run: a folder that was deleted or made read-only under it would
/// refuse the next start, too. What a file of configuration (--config, a plan of --data) says is
/// usage whatever is wrong with it.
namespace trireme {

enum class Access { read, write };

ErrorKind kind_of_refusal(Access access, int error_number) noexcept;

/// Throws "cannot WHAT PATH: No such file or directory" of that kind; of a write that is usage
/// also says what to do. `error_number`: errno, or the value of a std::error_code.
[[noreturn]] void fail_to_read(std::string_view what, const std::filesystem::path& path,
                               int error_number);
[[noreturn]] void fail_to_write(std::string_view what, const std::filesystem::path& path,
                                int error_number);

/// Before a file is put in the place of `path`: throws Error(usage) if that is
/// a device, a pipe or a socket.
void check_replaceable(const std::filesystem::path& path);

/// The exception in flight as an Error, for the places where foreign ones arrive (call it inside a
/// catch handler): std::bad_alloc and a machine's refusals are resource, other std::filesystem
/// refusals are of a read (writes name theirs before), anything else is internal.
Error current_error();

}  // namespace trireme
