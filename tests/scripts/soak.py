"""Does what a seed says: forks, spawns, threads, gets signals, and ends in one of many ways.

    python tests/scripts/soak.py SEED

Started by tests/campaigns/soak.py, which gives it three pipes in the environment: on SAY it tells that it is at a point, and
which signal it wants there; on GO it is told that the signal was sent; HOLD is closed when it and all its children are
to end. What it prints is the same at every start of a seed, under python and under pedl-run.
"""
import atexit
import hashlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

# Sent to the script from outside. All but the last can be handled.
SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGKILL"]
# Of the script's own doing.
DEADLY = ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGKILL", "SIGSEGV", "SIGFPE", "SIGPIPE", "SIGALRM", "SIGRTMIN"]
HARMLESS = ["SIGWINCH", "SIGCHLD", "SIGURG"]

# How long a signal may take.
LONGEST = 20.0

counts = {}


def say(*words):
    """Prints a line at once, and so that a handler may do it."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def pipe(name):
    return int(os.environ["SOAK_" + name])


# -- signals from outside ----------------------------------------------------------------------------------------------


def on_signal(number, frame):
    name = signal.Signals(number).name
    counts[name] = counts.get(name, 0) + 1


class Plan:
    """What happens to each signal, and at which point which one is asked for."""

    def __init__(self, dice):
        self.dice = dice
        self.handling = {name: dice.choice(["default", "handled", "ignored"]) for name in SIGNALS[:-1]}
        self.handling["SIGKILL"] = "default"
        self.catches_interrupt = dice.random() < 0.5
        for name, handling in self.handling.items():
            if handling == "handled":
                signal.signal(getattr(signal, name), on_signal)
            elif handling == "ignored":
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        # Most signals do not end the script, so that it comes to more than one.
        harmless = [name for name in SIGNALS if self.handling[name] != "default"] or ["SIGWINCH"]
        self.wanted = [dice.choice(harmless) if dice.random() < 0.8 else dice.choice(SIGNALS) for _ in range(3)]

    def point(self, name):
        """A point where a signal may come from outside."""
        wanted = self.wanted.pop() if self.wanted and self.dice.random() < 0.6 else "none"
        say("at", name, "with", wanted, self.handling.get(wanted, ""))
        before = counts.get(wanted, 0)
        try:
            os.write(pipe("SAY"), (wanted + "\n").encode())
            assert os.read(pipe("GO"), 1)
            self._wait_for_effect(wanted, before)
        except KeyboardInterrupt:
            say("interrupted")
            if not self.catches_interrupt:
                raise

    def _wait_for_effect(self, wanted, before):
        handling = self.handling.get(wanted)
        deadline = time.monotonic() + LONGEST
        if handling == "handled":
            while counts.get(wanted, 0) == before and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.01)
            say(wanted, "came", counts.get(wanted, 0) - before, "times")
        elif handling == "default" and wanted != "SIGWINCH":
            while time.monotonic() < deadline:
                time.sleep(0.01)
            say("survived", wanted)
        elif handling is not None:
            time.sleep(0.02)


# -- what a script does ------------------------------------------------------------------------------------------------


def import_ours():
    """Scripts of ours do it everywhere; under python it is not there."""
    try:
        import pedl  # noqa: F401
    except ImportError:
        pass


def work(number):
    import_ours()
    return hashlib.sha256(str(number).encode()).hexdigest()[:8]


def describe(status):
    if os.WIFSIGNALED(status):
        return "signal {}".format(os.WTERMSIG(status))
    return "code {}".format(os.WEXITSTATUS(status))


def end_child(dice):
    """Ends a forked child."""
    if dice.random() < 0.3:
        name = dice.choice(["SIGTERM", "SIGKILL"])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), getattr(signal, name))
    os._exit(dice.randrange(200))


def fork_one(plan):
    child = os.fork()
    if child == 0:
        end_child(plan.dice)
    plan.dice.random()
    plan.point("while a child is a zombie")
    say("child", describe(os.waitpid(child, 0)[1]))


def fork_many(plan):
    children = []
    for index in range(4):
        seed = plan.dice.random()
        child = os.fork()
        if child == 0:
            work(index)
            end_child(random.Random(seed))
        children.append(child)
    say("children", *[describe(os.waitpid(child, 0)[1]) for child in children])


def fork_waiting(plan):
    """A child that lives at a point, and is ended afterwards. Where the script dies there it is left."""
    child = os.fork()
    if child == 0:
        os.read(pipe("HOLD"), 1)
        os._exit(0)
    plan.point("while a child lives")
    os.kill(child, signal.SIGKILL)
    say("child", describe(os.waitpid(child, 0)[1]))


def fork_orphan(plan):
    """A grandchild that is nobody's, and lives until it is told to end."""
    leaves_session = plan.dice.random() < 0.5
    child = os.fork()
    if child == 0:
        if leaves_session:
            os.setsid()
        if os.fork() == 0:
            os.read(pipe("HOLD"), 1)
        os._exit(0)
    say("orphan", describe(os.waitpid(child, 0)[1]))
    plan.point("with an orphan")


def short_orphan(plan):
    """A grandchild that is nobody's, and ends by itself."""
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(plan.dice.random() / 50)
        os._exit(0)
    plan.dice.random()
    os.waitpid(child, 0)


def pool(method):
    def run(plan):
        with multiprocessing.get_context(method).Pool(2) as workers:
            say(method, *workers.map(work, range(plan.dice.randrange(2, 6))))
            workers.close()
            workers.join()
        plan.point("after a pool")

    return run


def leave(code):
    sys.exit(code)


def process(method):
    def run(plan):
        child = multiprocessing.get_context(method).Process(target=leave, args=(plan.dice.randrange(100),))
        child.start()
        child.join()
        say(method, child.exitcode)

    return run


def threads(plan):
    results = [None] * 6

    def compute(index):
        results[index] = work(index)

    started = [threading.Thread(target=compute, args=(index,)) for index in range(6)]
    for thread in started:
        thread.start()
    plan.point("with threads")
    for thread in started:
        thread.join()
    say("threads", *results)


def daemon_thread(plan):
    """One that is still there at the end."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    plan.point("with a daemon thread")


def last_thread(plan):
    """One that the interpreter waits for."""
    def end():
        threading.main_thread().join()
        say("the last thread has ended")

    threading.Thread(target=end).start()


def run_python(plan):
    code = "import sys\ntry:\n    import pedl\nexcept ImportError: pass\nprint(sum(range(9)))\nsys.exit(%d)"
    done = subprocess.Popen([sys.executable, "-c", code % plan.dice.randrange(100)], stdout=subprocess.PIPE)
    text = done.communicate()[0]
    say("subprocess", done.returncode, text.decode().strip())


def run_shell(plan):
    say("shell", subprocess.call("exit 3 & kill -TERM $$", shell=True))


def signal_self(plan):
    name = plan.dice.choice(HARMLESS)
    os.kill(os.getpid(), getattr(signal, name))
    say("sent itself", name)


def signal_group(plan):
    """A signal to the process group, in which pedl-run is as well."""
    names = [name for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM") if plan.handling[name] != "default"]
    name = plan.dice.choice(names or ["SIGWINCH"])
    before = counts.get(name, 0)
    os.killpg(os.getpgrp(), getattr(signal, name))
    time.sleep(0.05)
    say("sent its group", name, "which came", counts.get(name, 0) - before, "times")


ACTIONS = [
    fork_one, fork_many, fork_waiting, fork_orphan, short_orphan, threads, daemon_thread, last_thread, run_python,
    run_shell, signal_self, signal_group,
] + [make(method) for make in (pool, process) for method in ("fork", "spawn", "forkserver")]  # fmt: skip


# -- how it ends -------------------------------------------------------------------------------------------------------


def end_of_file(plan):
    pass


def exit_with_code(plan):
    sys.exit(plan.dice.choice([0, 1, 3, 64, 70, 75, 77, 143, 201, 255, 256, -1]))


def exit_with_text(plan):
    sys.exit("the reason")


def exception(plan):
    raise RuntimeError("of the script")


def exit_at_once(plan):
    os._exit(plan.dice.randrange(256))


def abort(plan):
    os.abort()


def kill_self(plan):
    name = plan.dice.choice(DEADLY)
    number = getattr(signal, name)
    if name != "SIGKILL":
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(LONGEST)


def kill_group(plan):
    name = plan.dice.choice(["SIGTERM", "SIGUSR1", "SIGKILL"])
    if name != "SIGKILL":
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.killpg(os.getpgrp(), getattr(signal, name))
    time.sleep(LONGEST)


ENDS = [end_of_file, exit_with_code, exit_with_text, exception, exit_at_once, abort, kill_self, kill_self, kill_group]


def main():
    dice = random.Random(int(sys.argv[1]))
    plan = Plan(dice)
    if dice.random() < 0.3:
        import_ours()
    if dice.random() < 0.5:
        atexit.register(say, "at the end")
    plan.point("the beginning")
    for action in [dice.choice(ACTIONS) for _ in range(dice.randrange(1, 5))]:
        action(plan)
    plan.point("the end")
    dice.choice(ENDS)(plan)


if __name__ == "__main__":
    main()
