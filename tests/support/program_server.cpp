#include "support/program_server.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"

namespace trireme::testing {

ProgramServer::ProgramServer(const std::string& program, const std::string& library) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0 ||
      ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    fail(ErrorKind::internal, "no socket to {}", program);
  loaded_ = ::fork();
  if (loaded_ == 0) {
    ::fcntl(ends[1], F_SETFD, 0);
    ::setenv("TRIREME_TEST_SOCKET", std::to_string(ends[1]).c_str(), 1);
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execl(program.c_str(), program.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  socket_ = ends[0];
}

ProgramServer::~ProgramServer() {
  ::close(socket_);
  ::waitpid(loaded_, nullptr, 0);
}

pid_t ProgramServer::start(const std::vector<std::string>& arguments,
                           const std::map<std::string, std::string>& environment,
                           const std::array<int, 3>& streams) {
  std::string text = std::filesystem::current_path().string() + '\0';
  text += std::to_string(arguments.size()) + '\0';
  for (const std::string& argument : arguments) text += argument + '\0';
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string one = *variable;
    if (!environment.contains(one.substr(0, one.find('=')))) text += one + '\0';
  }
  for (const auto& [name, value] : environment) text += name + '=' + value + '\0';

  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof streams)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(head), streams.data(), sizeof streams);
  pid_t pid = -1;
  if (::sendmsg(socket_, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()) ||
      ::read(socket_, &pid, sizeof pid) != static_cast<ssize_t>(sizeof pid) || pid <= 0)
    fail(ErrorKind::internal, "the loaded program does not start {}", arguments[0]);
  return pid;
}

}  // namespace trireme::testing
