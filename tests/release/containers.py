"""Systems, images and containers, made with the tools that container engines use. Needs root, unshare and the network.

    system = containers.debian("bullseye", "python3")       # unpacked by debootstrap once, and kept
    image = containers.build(dockerfile, context, scratch)  # runs the instructions of a Dockerfile
    container = containers.Container(image, scratch, user=12345, read_only=True).start()

A container has separate namespaces for processes, mounts, names and IPC; its command is process 1; and everything
writable in it is mounted as Docker mounts it: without code (`noexec`), and with 64 MB of shared memory.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

# Seconds after which a step counts as hanging: unpacking a system takes minutes.
LIMIT = 3600

# Seconds between two looks at a condition.
LOOK_INTERVAL = 0.005

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The system below the official images of Python, and the packages of it that their interpreter needs.
BASE_SYSTEM = "bookworm"
BASE_PACKAGES = "ca-certificates libbz2-1.0 libffi8 liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 zlib1g"

# Makes the mounts, as process 1 of the new namespaces, and becomes the command.
SET_UP = """
set -eu
mount --make-rprivate /
mount -t overlay overlay -o "$OVERLAY" "$ROOT"
mount -t proc -o nosuid,nodev,noexec proc "$ROOT/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$ROOT/sys"
mount -t tmpfs -o mode=755,nosuid,noexec tmpfs "$ROOT/dev"
for name in full null random urandom zero; do
    : > "$ROOT/dev/$name"
    mount --bind "/dev/$name" "$ROOT/dev/$name"
done
ln -s /proc/self/fd "$ROOT/dev/fd"
mkdir "$ROOT/dev/shm"
mount -t tmpfs -o mode=1777,nosuid,nodev,noexec,size=64m shm "$ROOT/dev/shm"
{mounts}
hostname container
exec chroot "$ROOT" "$@"
"""


class Image:
    """A root, as layers with the topmost first, and the settings of a Dockerfile for the command.

    Args:
        layers: The directories.
        like: The image from which all other settings are copied.
    """

    def __init__(self, layers, like=None):
        self.layers = list(layers)
        self.entrypoint = like.entrypoint if like else []
        self.command = like.command if like else []
        self.environment = dict(like.environment) if like else {"PATH": SEARCH_PATH}
        self.directory = like.directory if like else "/"

    def step(self, script, mounts=(), environment=None):
        """Runs a line of shell as in the build of an image: its changes go into the topmost layer."""
        layer, *below = self.layers
        scratch = layer.with_name(layer.name + ".step")
        scratch.mkdir()
        container = Container(Image(below, like=self), scratch, upper=layer, mounts=mounts, environment=environment)
        try:
            container.run(command=["/bin/sh", "-c", script])
        finally:
            container.close()
            shutil.rmtree(str(scratch))


class Container:
    """One container, which may be started more than once.

    Args:
        image: Its `Image`.
        scratch: An empty directory for the changes and the output of the container.
        user: Number of the user and the group; they need not be known inside.
        read_only: Whether its root cannot be written to.
        upper: The directory for the files that it writes, by default below `scratch`.
        mounts: Lines of shell that mount more below `$ROOT`.
        volumes: Directories here by their paths inside.
        environment: Variables, in addition to those of the image.
    """

    def __init__(self, image, scratch, user=0, read_only=False, upper=None, mounts=(), volumes=None, environment=None):
        self.image = image
        self.scratch = Path(scratch)
        self.upper = upper or self.scratch / "upper"
        self.user = user
        self.read_only = read_only
        self.volumes = {inside: Path(here) for inside, here in (volumes or {}).items()}
        self.mounts = [
            f"mkdir -p $ROOT{inside}\nmount --bind {shlex.quote(str(here))} $ROOT{inside}"
            for inside, here in self.volumes.items()
        ]
        self.mounts += mounts
        self.environment = dict(image.environment, **(environment or {}))
        self._started = []

    def start(self, *arguments, command=None):
        """Starts the image's entry point with these arguments (or the image's default ones), or a command instead."""
        words = command or [*self.image.entrypoint, *(arguments or self.image.command)]
        started = Started(self._outer(), words, self._variables(), self.scratch / f"output-{len(self._started)}")
        self._started.append(started)
        return started

    def run(self, *arguments, command=None, code=0):
        """Starts it and waits for its end; returns what it printed on standard output."""
        return self.start(*arguments, command=command).wait().check(code).stdout

    def close(self):
        for started in self._started:
            started.kill()

    def _outer(self):
        script = SET_UP.replace("{mounts}", "\n".join(self.mounts))
        outer = ["unshare", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", script, "sh"]
        if self.user:
            outer += ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            outer += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return [*outer, "env", "-i", "-C", self.image.directory, *variables]

    def _variables(self):
        root = self.scratch / "root"
        root.mkdir(exist_ok=True)
        lower = ":".join(map(str, self.image.layers))
        overlay = f"lowerdir={lower}"
        if not self.read_only:
            work = self.scratch / "work"
            for directory in (self.upper, work):
                directory.mkdir(exist_ok=True)
            overlay += f",upperdir={self.upper},workdir={work}"
        return dict(os.environ, ROOT=str(root), OVERLAY=overlay)


class Started:
    """One start of a container, seen from outside."""

    def __init__(self, outer, words, environment, output):
        self._words = words
        self._stdout, self._stderr = output.with_suffix(".stdout"), output.with_suffix(".stderr")
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*outer, *map(str, words)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        self.namespace = None

    @property
    def stdout(self):
        return self._stdout.read_bytes().decode("utf-8", "replace")

    @property
    def stderr(self):
        return self._stderr.read_bytes().decode("utf-8", "replace")

    @property
    def code(self):
        """The exit code; minus the number of the signal that killed it."""
        return self._process.returncode

    @property
    def init(self):
        """The process id of its process 1 on the host; None if there is none."""
        try:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        except FileNotFoundError:
            return None
        if not children:
            return None
        pid = int(children[0])
        self.namespace = self.namespace or _namespace(pid)
        return pid

    def processes(self):
        """All its processes: (process id on the host, that of the parent, state) of each."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and self.namespace and _namespace(int(name)) == self.namespace:
                try:
                    fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                found.append((int(name), int(fields[1]), fields[0].decode()))
        return found

    def send(self, number):
        """Sends a signal to process 1, as an engine does."""
        os.kill(self.init, number)

    def kill(self):
        """SIGKILL to process 1, and so to every process of the container; waits until all have ended."""
        if self._process.poll() is None:
            if self.init:
                os.kill(self.init, signal.SIGKILL)
            else:
                self._process.kill()
        return self.wait()

    def wait(self, timeout=LIMIT):
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {timeout} s; killed: {self!r}") from None
        return self

    def wait_until(self, condition, timeout=LIMIT):
        """Waits until `condition()` is true. Fails if the container ends before that."""
        limit = time.monotonic() + timeout
        while not condition():
            assert self._process.poll() is None, f"it ended too early: {self!r}"
            if time.monotonic() > limit:
                self.kill()
                raise AssertionError(f"it did not happen within {timeout} s; killed: {self!r}")
            time.sleep(LOOK_INTERVAL)

    def check(self, code=0):
        """Fails with everything that was printed if the exit code is another; returns itself."""
        assert self.code == code, f"expected exit code {code}, got {self!r}"
        return self

    def __repr__(self):
        return f"{self._words}: {self.code}\n---- stdout\n{self.stdout}\n---- stderr\n{self.stderr}"


def _namespace(pid):
    """The number of the namespace of a process, also of a zombie; None if it cannot be determined."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def systems():
    """The directory of unpacked systems (`cargo dev container` sets it)."""
    return Path(os.environ["PEDL_SYSTEMS"])


def debian(release, packages):
    """A Debian with these packages and what they need, unpacked by debootstrap; an `Image`."""
    name = f"{release}-{hashlib.sha256(packages.encode()).hexdigest()[:12]}"
    directory, marker = systems() / name, systems() / f"{name}.complete"
    if not marker.exists():
        if shutil.which("debootstrap") is None:
            _run("apt-get", "install", "--yes", "--no-install-recommends", "debootstrap")
        shutil.rmtree(str(directory), ignore_errors=True)
        include = ",".join(packages.split())
        _run("debootstrap", "--variant=minbase", f"--include={include}", release, directory)
        marker.write_text(packages + "\n")
    return Image([directory])


def python(version):
    """A substitute for the official image of a version of Python: a Python of this machine below /usr/local.

    Like the official ones it is linked against a libpython, which is found through the cache of the linker.
    """
    system = debian(BASE_SYSTEM, BASE_PACKAGES)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    prefix = max(root.glob(version + ".*"), default=None)
    assert prefix, f"no Python {version} below {root} to make an image of"
    layer, marker = systems() / f"python-{prefix.name}", systems() / f"python-{prefix.name}.complete"
    image = Image([layer, *system.layers])
    if not marker.exists():
        shutil.rmtree(str(layer), ignore_errors=True)
        shutil.copytree(str(prefix), str(layer / "usr" / "local"), symlinks=True)
        for script in (layer / "usr" / "local" / "bin").iterdir():
            content = script.read_bytes()
            if content.startswith(b"#!" + bytes(prefix)):
                script.write_bytes(content.replace(bytes(prefix), b"/usr/local", 1))
        image.step("ldconfig")
        marker.write_text(f"{prefix}\n")
    return image


def build(dockerfile, context, scratch):
    """Runs the instructions of a Dockerfile; returns an `Image`. An unknown instruction is an error."""
    builder = _Builder(Path(context), Path(scratch))
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", dockerfile.read_text()))
    for line in text.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            getattr(builder, f"do_{word.lower()}")(rest.strip())
    return builder.image


class _Builder:
    """One method for each known instruction, named after it."""

    def __init__(self, context, scratch):
        self.context = context
        self.layer = scratch / "layer"
        self.layer.mkdir(parents=True)
        self.image = None

    def do_from(self, rest):
        version = re.fullmatch(r"python:(\d+\.\d+)-slim", rest)
        assert version, f"nothing here stands for the image `{rest}`"
        below = python(version.group(1))
        self.image = Image([self.layer, *below.layers], like=below)

    def do_run(self, rest):
        mounts = []
        while rest.startswith("--"):
            option, _, rest = rest.partition(" ")
            cache = re.fullmatch(r"--mount=type=cache,target=(/\S+)", option)
            assert cache, f"`RUN {option}` is not understood"
            here = systems() / ("cache" + cache.group(1).replace("/", "-"))
            here.mkdir(exist_ok=True)
            mounts.append(f"mkdir -p $ROOT{cache.group(1)}\nmount --bind {here} $ROOT{cache.group(1)}")
            rest = rest.strip()
        mounts += ["cat /etc/resolv.conf > $ROOT/etc/resolv.conf"]
        mounts += ["mount --bind /etc/ssl/certs/ca-certificates.crt $ROOT/etc/ssl/certs/ca-certificates.crt"]
        self.image.step(rest, mounts, dict(_network_settings(), HOME="/root"))

    def do_copy(self, rest):
        source, target = rest.split()
        place = self.layer / target.lstrip("/")
        if target.endswith("/"):
            place = place / Path(source).name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(str(self.context / source), str(place))

    def do_env(self, rest):
        name, _, value = rest.partition("=")
        self.image.environment[name] = value

    def do_workdir(self, rest):
        (self.layer / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self.image.directory = rest

    def do_volume(self, rest):
        assert (self.layer / rest.lstrip("/")).is_dir(), f"`{rest}` is not in the image"

    def do_stopsignal(self, rest):
        assert rest in ("SIGTERM", "15"), f"an engine would send {rest}"

    def do_entrypoint(self, rest):
        self.image.entrypoint = json.loads(rest)

    def do_cmd(self, rest):
        self.image.command = json.loads(rest)


def make_pipe(path, user):
    """A named pipe that belongs to a user: a reader waits until somebody writes."""
    os.mkfifo(str(path))
    shutil.chown(str(path), user, user)


def _network_settings():
    """The variables for access to the package index from here."""
    wanted = re.compile(r"(?i)PIP_(INDEX_URL|CERT|DEFAULT_TIMEOUT)|https?_proxy|no_proxy")
    return {name: value for name, value in os.environ.items() if wanted.fullmatch(name)}


def _run(*command):
    """Runs a command here; its output is shown if it fails."""
    ended = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout.decode('utf-8', 'replace')}"
