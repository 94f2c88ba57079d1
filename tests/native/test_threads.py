"""Items that threads build: a queue of tasks, and the items that are returned (issue 6, contract K12 to K14)."""

import signal
import threading
import time

import pytest

pytestmark = pytest.mark.stack("plain", "plain-python37")


@pytest.fixture
def tasks(native):
    """Tasks that no thread serves yet."""
    made = native.Trial.thread_tasks()
    yield made
    made.close()


def serve(tasks, build, count=1):
    """Starts threads that build."""
    threads = [threading.Thread(target=tasks.serve, args=(build,), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_each_task_gives_its_own_item(tasks):
    serve(tasks, lambda epoch, index: (epoch, index), 4)
    wanted = tasks.submit(3, list(range(200)))
    assert [task.take() for task in reversed(wanted)] == [(3, index) for index in reversed(range(200))]


def test_one_thread_builds_in_order(tasks):
    built = []
    serve(tasks, lambda epoch, index: built.append(index))
    for task in tasks.submit(0, [5, 3, 8]) + tasks.submit(0, [1]):
        task.take()
    assert built == [5, 3, 8, 1]


def test_an_exception_is_raised_where_the_item_is_asked_for(tasks):
    error = ValueError("broken")

    def build(epoch, index):
        raise error

    serve(tasks, build)
    (task,) = tasks.submit(0, [1])
    with pytest.raises(ValueError, match="broken") as caught:
        task.take()
    assert caught.value is error
    assert "build" in [entry.name for entry in caught.traceback], "where it was raised"


def test_a_task_that_is_not_needed_is_not_built(tasks):
    built = []
    first, second, third = tasks.submit(0, [1, 2, 3])
    second.cancel()
    threads = serve(tasks, lambda epoch, index: built.append(index))
    first.take()
    third.take()
    tasks.close()
    threads[0].join(30)
    assert built == [1, 3]


def test_threads_end_once_what_they_build_is_built(tasks):
    begun, let = threading.Event(), threading.Event()

    def build(epoch, index):
        begun.set()
        assert let.wait(30)
        return index

    threads = serve(tasks, build)
    first, second = tasks.submit(0, [1, 2])
    assert begun.wait(30)
    tasks.close()
    let.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert first.take() == 1
    with pytest.raises(RuntimeError, match="no thread builds"):
        second.take()
    with pytest.raises(RuntimeError, match="a pass that is over"):
        tasks.submit(0, [2])


def test_a_signal_ends_a_wait(tasks):
    def handle(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        (task,) = tasks.submit(0, [1])
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            task.take()
        assert time.monotonic() - begun < 10
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
