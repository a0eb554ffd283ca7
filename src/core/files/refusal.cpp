#include "core/files/refusal.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

namespace trireme {
namespace {

/// Errors that persist however often a job is repeated. All other errors depend on the machine.
constexpr std::array kLasting{ENOENT, ENOTDIR, EISDIR, EEXIST,  ENOTEMPTY, EACCES,       EPERM,
                              EROFS,  EINVAL,  ELOOP,  ENXIO,   ENODEV,    ENAMETOOLONG, EBUSY,
                              EXDEV,  ETXTBSY, EMLINK, ENOTSUP, EILSEQ,    EDEADLK};

bool is_taken(int error_number) {
  return error_number == EEXIST || error_number == ENOTEMPTY;
}

const char* advice_on_files(int error_number) {
  return error_number == EMFILE
             ? "; this process has reached its hard limit on open files (ulimit -Hn): raise the limit"
             : "";
}

/// Returns advice for a path that cannot be written, however often it is tried.
std::string advice_on_writing(const std::filesystem::path& path, int error_number) {
  if (is_taken(error_number)) return "; existing files are not overwritten: choose another path";
  const std::filesystem::path parent = path.parent_path();
  std::error_code code;
  if (error_number == ENOENT && !parent.empty() && !std::filesystem::exists(parent, code))
    return formatted("; create the directory {} first, or choose another path", parent.string());
  return "; choose a writable path";
}

bool is_from_the_system(const std::error_code& code) {
  return code.category() == std::generic_category() || code.category() == std::system_category();
}

}  // namespace

ErrorKind kind_of_errno(Access access, int error_number) noexcept {
  if (std::find(kLasting.begin(), kLasting.end(), error_number) == kLasting.end())
    return ErrorKind::resource;
  return access == Access::read ? ErrorKind::data : ErrorKind::usage;
}

void fail_to_read(std::string_view what, const std::filesystem::path& path, int error_number) {
  fail(kind_of_errno(Access::read, error_number), "cannot {} {}: {}{}", what,
       path.empty() ? "''" : path.string(), std::strerror(error_number),
       advice_on_files(error_number));
}

void fail_to_write(std::string_view what, const std::filesystem::path& path, int error_number) {
  const ErrorKind kind = kind_of_errno(Access::write, error_number);
  const std::string advice = kind == ErrorKind::usage ? advice_on_writing(path, error_number)
                                                      : advice_on_files(error_number);
  fail(kind, "cannot {} {}: {}{}", what, path.empty() ? "''" : path.string(),
       std::strerror(error_number), advice);
}

void check_replaceable(const std::filesystem::path& path) {
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::status(path, code);
  if (code || !std::filesystem::is_other(status)) return;
  fail(ErrorKind::usage, "{} is a device, a pipe or a socket: choose a regular file",
       path.string());
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(
        ErrorKind::resource,
        "out of memory: the system refused an allocation; use a smaller batch, or more memory");
  } catch (const std::system_error& error) {
    if (!is_from_the_system(error.code())) return Error(ErrorKind::internal, error.what());
    const ErrorKind kind = kind_of_errno(Access::read, error.code().value());
    const bool names_a_file =
        dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr;
    return Error(kind == ErrorKind::data && !names_a_file ? ErrorKind::internal : kind,
                 error.what());
  } catch (const std::exception& error) {
    return Error(ErrorKind::internal, error.what());
  } catch (...) {
    return Error(ErrorKind::internal, "an unknown exception");
  }
}

}  // namespace trireme
