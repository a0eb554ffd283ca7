"""Makes a root directory that has what a GPU machine has: the C library, a shell, python3 and the torch wheel; no Open MPI, no HDF5.

Files are copied, so that nothing else of this machine is there; Python's own directories are mounted read-only.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

import places

COMMANDS = ("bash", "sh", "env", "cat", "ls", "mkdir", "rm", "uname", "timeout", "sleep", "ldd")
# The compiled Python modules with libraries that LibTorch's package needs.
MODULES = ("_ctypes", "zlib")
C_LIBRARY = ("libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2", "libutil.so.1", "libanl.so.1", "libnss_files.so.2", "libnss_dns.so.2")
FORBIDDEN = ("libmpi*", "libopen-*", "libhdf5*", "libspdlog*", "libfmt*", "libsimdjson*", "libhwloc*", "libpmix*")
# Sets the flag "up" of the loopback interface (struct ifreq of netdevice(7)): a new network namespace has it down, a GPU machine has it up.
LOOPBACK = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh22x', b'lo', 1))"
SCRIPT = r"""
set -eu
"$1" -c "$2"
shift 2
root=$1
shift
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done
shift
exec chroot "$root" "$@"
"""


class Unable(Exception):
    """This machine cannot make the root; the message says why."""


def libraries_of(path):
    """Returns the files that a program or library loads, found with the dynamic loader."""
    text = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.decode()
    return re.findall(r"(?:=> )?(/\S+) \(", text)


def put(root, path):
    """Copies a file to the same path below the root; its directories stay as they are named here (no links)."""
    target = root + path
    if not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.realpath(path), target)


def make(root):
    """Fills the directory `root`. Returns the directories to mount in it and the variables that Python needs."""
    python, torch = places.python_with_torch()
    if python is None:
        raise Unable("no python3 with torch is here (bin/demo installs it)")
    packages, stdlib = os.path.dirname(torch), sysconfig.get_path("stdlib")
    interpreter = os.path.realpath(sys.executable)
    programs = [shutil.which(name) for name in COMMANDS] + [interpreter]
    modules = [file for name in MODULES for file in glob.glob(f"{stdlib}/lib-dynload/{name}.*.so")]
    for file in [*programs, *modules, f"{torch}/lib/libtorch_python.so"]:
        for library in libraries_of(file):
            if not os.path.realpath(library).startswith((packages, os.path.realpath(packages))):
                put(root, library)
    folder = os.path.dirname(next(file for file in libraries_of(interpreter) if "/libc.so" in file))
    for file in [*programs, *(os.path.join(folder, name) for name in C_LIBRARY if os.path.exists(os.path.join(folder, name)))]:
        put(root, file)
    for name in COMMANDS + ("python3",):
        link = f"{root}/usr/bin/{name}"
        if not os.path.lexists(link):
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(interpreter if name == "python3" else shutil.which(name), link)
    for folder in ("etc", "tmp", "bin", "root"):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    if not os.path.lexists(f"{root}/bin/sh"):
        os.symlink("/usr/bin/sh", f"{root}/bin/sh")
    if not os.path.lexists(f"{root}/bin/bash"):
        os.symlink("/usr/bin/bash", f"{root}/bin/bash")
    with open(f"{root}/etc/passwd", "w", encoding="utf-8") as file:
        file.write("root:x:0:0:root:/root:/bin/sh\n")
    return ["/proc", "/dev", "/sys", stdlib, packages], {"PYTHONPATH": packages, "PATH": "/usr/bin:/bin", "HOME": "/root", "PYTHONHOME": sys.base_prefix}


def forbidden(root):
    """Files below the root that a GPU machine does not have."""
    return sorted(file for pattern in FORBIDDEN for file in glob.glob(f"{root}/**/{pattern}", recursive=True))


def enter(root, mounts, variables, command):
    """Runs a command in the root, in a mount namespace of its own and with no network but the loopback interface; returns its exit code. Raises Unable."""
    unshare = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    try:
        subprocess.run([*unshare, "true"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unable(f"no mount namespace can be made here: {error}") from error
    words = [*unshare, "sh", "-c", SCRIPT, "enter", sys.executable, LOOPBACK, root, *mounts, "--", *command]
    return subprocess.run(words, env={**variables, "PATH": "/usr/sbin:/sbin:" + variables["PATH"]}, check=False).returncode
