// A library for LD_PRELOAD. It runs a program as often as a test asks for, but loads it only once: the program stops before
// main(), after all constructors, and each request forks it. LibTorch's constructors take a quarter of a second.
//
// A request is a packet on the socket with the number TRIREME_TEST_SOCKET: the working directory, the number of arguments, the
// arguments and the environment, each with a final zero, and three descriptors (0, 1 and 2 of the new process). The answer is
// the process id. The new process becomes a child of the test, which must be a subreaper.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

struct Request {
  std::vector<char> text;
  std::array<int, 3> streams{-1, -1, -1};
};

bool receive(int socket, Request& request) {
  request.text.resize(std::size_t{1} << 17);
  iovec part{request.text.data(), request.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(3 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = ::recvmsg(socket, &message, 0);
  const cmsghdr* streams = size > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (streams == nullptr) return false;
  std::memcpy(request.streams.data(), CMSG_DATA(streams), sizeof request.streams);
  request.text.resize(static_cast<std::size_t>(size));
  return true;
}

int become_program(int socket, Request& request) {
  ::close(socket);
  ::setpgid(0, 0);
  for (int i = 0; i < 3; ++i) ::dup2(request.streams[static_cast<std::size_t>(i)], i);
  for (const int stream : request.streams) ::close(stream);
  static std::vector<char*> words;  // the program keeps pointers to them
  for (char* at = request.text.data(); at < request.text.data() + request.text.size();
       at += std::string_view(at).size() + 1)
    words.push_back(at);
  if (::chdir(words[0]) != 0) ::_exit(126);
  const int argc = std::atoi(words[1]);
  words.insert(words.begin() + 2 + argc, nullptr);
  words.push_back(nullptr);
  environ = words.data() + 3 + argc;
  return program_main(argc, words.data() + 2, environ);
}

int serve(int argc, char** argv, char** environment) {
  const char* number = std::getenv("TRIREME_TEST_SOCKET");
  if (number == nullptr) return program_main(argc, argv, environment);
  const int socket = std::atoi(number);
  static Request request;
  while (receive(socket, request)) {
    const pid_t between = ::fork();
    if (between == 0) {
      const pid_t program = ::fork();
      if (program == 0) return become_program(socket, request);
      (void)!::write(socket, &program, sizeof program);
      ::_exit(0);  // the test adopts the program
    }
    ::waitpid(between, nullptr, 0);
    for (const int stream : request.streams) ::close(stream);
  }
  ::_exit(0);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int argc,
                                                                        char** argv, void (*init)(),
                                                                        void (*fini)(),
                                                                        void (*rtld_fini)(),
                                                                        void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program_main = main;
  const auto start = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
