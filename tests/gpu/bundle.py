"""Packs a directory that runs on a machine without the libraries of this machine: programs,
shared libraries, Open MPI's plug-ins and these scripts.

Programs and libraries find each other through $ORIGIN. The C library, LibTorch and its CUDA
libraries stay outside: the first belongs to the machine, the others come with the wheel.
"""
import datetime
import fnmatch
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile

import elf
import places

MAX_BYTES = 60 * 2**20
COMPRESSORS = {".tar.zst": ["zstd", "-q", "-12", "-T0", "-f", "-o"], ".tar.xz": "w:xz", ".tar.gz": "w:gz"}
SCRIPTS = ("check", "*.py", "README.md")
ORACLE = ("model.py",)
# Plug-ins of fabrics, of OpenSHMEM, of monitors and of launchers: one process on one machine needs none of them.
UNUSED_PLUGINS = ("*ofi*", "*ucx*", "*psm*", "*openib*", "*monitoring*", "mca_memheap_*", "mca_scoll_*", "mca_spml_*", "mca_sshmem_*", "mca_io_romio*",
                  "libompi_dbg*", "*flux*",
                  "mca_pmix_ext*")
OUTSIDE = re.compile(r"^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libnsl|libmvec)\.so|^linux-vdso")
TOP = "trireme-gpu-check"


class PackError(Exception):
    """The bundle cannot be packed; the message says what to do."""


class BadName(PackError):
    """The name of the archive is not allowed."""


def loaded(path):
    """[(library name, its file)] of all that a program or library loads. Raises PackError if one is not found."""
    listing = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout.decode()
    if "not found" in listing:
        raise PackError(f"ldd {path} misses libraries:\n{listing}")
    return [(match[1], match[2]) for match in re.finditer(r"(\S+) => (/\S+) \(", listing)]


def carried(path, wheel):
    """Returns the libraries of a file that belong in the bundle: neither the C library's nor
    below `wheel`, the site-packages of LibTorch."""
    return [(name, file) for name, file in loaded(path) if not OUTSIDE.match(name) and not os.path.realpath(file).startswith(wheel + os.sep)]


def copy(source, target, search=None, transitive=False):
    """Copies an ELF file without its symbols, and gives it a search path."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(os.path.realpath(source), target)
    shutil.copymode(os.path.realpath(source), target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)
    if search:
        elf.set_search_path(target, search, transitive)


def openmpi_paths():
    """Directories of the Open MPI that the programs use, as ompi_info names them."""
    try:
        text = subprocess.run(["ompi_info", "--all", "--parsable"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as error:
        raise PackError(f"ompi_info does not run ({error}): put Open MPI's bin directory into PATH, or install openmpi-bin") from error
    return dict(re.findall(r"^path:(\w+):(.*)$", text, re.M))


def copy_openmpi(top):
    """Plug-ins, help texts and settings. Returns the plug-ins. places.environment has MPI_Init start no daemon, so that none is copied."""
    paths, base = openmpi_paths(), os.path.join(top, "openmpi")
    plugins = [file for file in sorted(glob.glob(os.path.join(paths["pkglibdir"], "*.so")))
               if not any(fnmatch.fnmatch(os.path.basename(file), pattern) for pattern in UNUSED_PLUGINS)]
    for file in plugins:
        copy(file, os.path.join(base, "lib", os.path.basename(file)), "$ORIGIN/../../lib")
    shutil.copytree(paths["pkgdatadir"], os.path.join(base, "share"))
    os.makedirs(os.path.join(base, "etc"))
    shutil.copy(os.path.join(paths["sysconfdir"], "openmpi-mca-params.conf"), os.path.join(base, "etc"))
    return plugins


def copy_libraries(top, files, wheel):
    """Copies the shared libraries of all `files` into lib. Libraries with their own search path
    get $ORIGIN."""
    wanted = {name: file for path in files for name, file in carried(path, wheel)}
    for name, file in sorted(wanted.items()):
        copy(file, os.path.join(top, "lib", name), "$ORIGIN")
    return sorted(wanted)


def copy_scripts(top):
    for folder, patterns in (("gpu", SCRIPTS), ("oracle", ORACLE)):
        source = os.path.join(places.ROOT, "tests", folder)
        target = os.path.join(top, "tests", folder)
        os.makedirs(target)
        for name in sorted(os.listdir(source)):
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                shutil.copy(os.path.join(source, name), target)


def revision():
    """Returns the revision of the checkout, with "+" if files differ from it; "unknown" outside
    git."""
    def git(*words):
        return subprocess.run(["git", "-C", places.ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode().strip()
    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def fill(top):
    """Copies everything below `top`; returns the facts for bundle.json."""
    programs = [places.program(name) for name in places.PROGRAMS]
    wheel = os.path.dirname(os.path.realpath(places.torch_directory()))
    for name, file in zip(places.PROGRAMS, programs):
        copy(file, os.path.join(top, "build", "release", name), "$ORIGIN/../../../lib", transitive=True)
    libraries = copy_libraries(top, programs + copy_openmpi(top), wheel)
    copy_scripts(top)
    facts = {"packed": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "revision": revision(),
             "libc": platform.libc_ver()[1], "libraries": libraries}
    with open(os.path.join(top, "bundle.json"), "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=1)
    return facts


def compress(folder, output, how):
    """Writes the directory as one archive."""
    if isinstance(how, str):
        with tarfile.open(output, how) as archive:
            archive.add(os.path.join(folder, TOP), TOP)
        return
    plain = os.path.join(folder, "plain.tar")
    with tarfile.open(plain, "w") as archive:
        archive.add(os.path.join(folder, TOP), TOP)
    subprocess.run([*how, output, plain], check=True)


def pack(output):
    """Writes the archive `output` and prints its size. Raises PackError; an archive over MAX_BYTES is not kept."""
    how = next((how for end, how in COMPRESSORS.items() if output.endswith(end)), None)
    if how is None:
        raise BadName(f"{output}: the archive must end with {', '.join(COMPRESSORS)}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(output))):
        raise BadName(f"{output}: its directory does not exist")
    if places.is_bundle():
        raise PackError("this is an unpacked bundle: pack from a checkout")
    for tool in ("strip", "ldd", *(how[:1] if isinstance(how, list) else ())):
        if shutil.which(tool) is None:
            raise PackError(f"the program {tool} is not in PATH; install it (binutils, libc-bin, zstd)")
    with tempfile.TemporaryDirectory() as folder:
        top = os.path.join(folder, TOP)
        facts = fill(top)
        written = os.path.join(folder, "archive" + output[output.rindex(".tar"):])
        compress(folder, written, how)
        size = os.path.getsize(written)
        if size > MAX_BYTES:
            raise PackError(f"the archive has {size / 2**20:.1f} MiB, at most {MAX_BYTES / 2**20:.0f} MiB are allowed")
        shutil.copyfile(written, output + ".new")
        os.replace(output + ".new", output)
    print(f"{output}: {size / 2**20:.1f} MiB, {len(places.PROGRAMS)} programs, {len(facts['libraries'])} libraries, revision {facts['revision']}")
    return 0
