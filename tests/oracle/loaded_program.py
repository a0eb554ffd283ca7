"""Runs one program many times but loads it only once (tests/support/loaded_program.cpp). The constructors of LibTorch take a quarter
of a second, which is most of the time of a short command."""
import ctypes
import os
import socket
import subprocess
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36


class LoadedProgram:
    """The loaded program ends with this process, because its socket closes."""

    def __init__(self, program, library):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.program = program
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            environment = {**os.environ, "LD_PRELOAD": library, "TRIREME_TEST_SOCKET": str(theirs.fileno())}
            self.process = subprocess.Popen([program], env=environment, pass_fds=[theirs.fileno()])

    def run(self, arguments, environment):
        """Returns the exit code and the output, which includes standard error."""
        words = [os.getcwd(), str(len(arguments) + 1), self.program, *arguments, *(f"{key}={value}" for key, value in environment.items())]
        with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as nothing:
            socket.send_fds(self.socket, [("\0".join(words) + "\0").encode()], [nothing.fileno(), output.fileno(), output.fileno()])
            pid = int.from_bytes(self.socket.recv(4), "little")
            code = None
            while code is None:
                try:
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                except ChildProcessError:  # the process that forked it has not ended yet
                    time.sleep(0.001)
            output.seek(0)
            return code, output.read().decode()


LOADED_ONCE = ("trireme", "family_driver", "parity_driver")  # programs of the build with LibTorch
PROGRAMS = {}


def run(command, environment=None):
    """Returns the exit code and the output of a command."""
    words = [str(word) for word in command]
    library = os.path.join(os.path.dirname(words[0]), "../tests/libtrireme_loaded_program.so")
    if os.path.basename(words[0]) not in LOADED_ONCE or not os.path.exists(library):
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                               env=environment)
        return ended.returncode, ended.stdout
    if words[0] not in PROGRAMS:
        PROGRAMS[words[0]] = LoadedProgram(words[0], os.path.realpath(library))
    return PROGRAMS[words[0]].run(words[1:], os.environ if environment is None else environment)


def call(command):
    """Returns the output of a command. Exits if the command fails."""
    code, output = run(command)
    if code != 0:
        raise SystemExit(f"{' '.join(str(word) for word in command)}\n{output}\nexit {code}")
    return output
