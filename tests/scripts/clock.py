"""Every way to ask the clock: the types and pickles are those of plain Python, and what is told is the time."""
import copy
import ctypes
import datetime
import inspect
import os
import pickle
import shutil
import sqlite3
import sys
import threading
import time
import traceback
import types
import uuid
import warnings
from datetime import date
from datetime import datetime as early



class Own(datetime.datetime):
    """A subclass, as pandas has one."""


class Timer:
    clock = time.time
    local = time.localtime


def about_now(value):
    return abs(value - time.time()) < 5


told = [datetime.datetime.now(), datetime.datetime.today(), early.now(), datetime.datetime.now(None)]
assert all(type(each) is datetime.datetime and about_now(each.timestamp()) for each in told)
assert early is datetime.datetime
assert all(isinstance(each, datetime.datetime) and pickle.loads(pickle.dumps(each)) == each for each in told)
zone = datetime.timezone(datetime.timedelta(hours=5))
assert about_now(datetime.datetime.now(zone).timestamp())
assert datetime.datetime.now(tz=zone).tzinfo is zone
assert type(Own.now()) is type(Own.today()) is Own
assert isinstance(Own.now(zone), datetime.datetime)
assert type(date.today()) is date
assert date.today() in (told[0].date(), datetime.datetime.now().date())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    utc = datetime.datetime.utcnow()
    assert type(Own.utcnow()) is Own
    assert about_now(utc.replace(tzinfo=datetime.timezone.utc).timestamp())
    assert utc.tzinfo is None
print("warned:", [(str(each.message), each.category.__name__, each.filename == __file__) for each in caught])
for wrong in (lambda: datetime.datetime.now(5), lambda: datetime.datetime.utcnow(5), lambda: time.time(5),
              lambda: time.strftime(), lambda: time.localtime("x"), lambda: time.strftime(5)):
    try:
        wrong()
    except TypeError as error:
        # Nobody stands between the line and the function that raises.
        print("TypeError", error, traceback.extract_tb(error.__traceback__)[1:])
for wrong in (lambda: open("/missing"), lambda: os.mkdir("/missing/folder"), lambda: os.replace("/missing", "/gone")):
    try:
        wrong()
    except OSError as error:
        print(repr(error), [each.name for each in traceback.extract_tb(error.__traceback__)])
print({os.open, os.mkdir, os.rename} <= os.supports_dir_fd, shutil.rmtree.avoids_symlink_attacks)
for function in (open, os.mkdir, os.open, os.urandom, sqlite3.connect, time.time):
    print(inspect.isbuiltin(function), isinstance(function, types.BuiltinFunctionType), function.__name__, function)
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function

assert about_now(time.time_ns() / 1e9)
assert type(time.time_ns()) is int
assert type(time.time()) is float
assert time.localtime()[:5] in (told[0].timetuple()[:5], datetime.datetime.now().timetuple()[:5])
assert time.gmtime(None)[:4] == time.gmtime()[:4]
assert time.gmtime(0).tm_year == 1970
assert time.ctime() in (time.asctime(), time.ctime())
assert len(time.ctime(None)) == 24
assert time.strftime("%Y-%m-%d %H", time.localtime()) == time.strftime("%Y-%m-%d %H")
assert time.strftime("%Y", time.gmtime(0)) == "1970"
assert about_now(Timer().clock())
assert Timer().local().tm_year == time.localtime().tm_year
for function in (time.time, time.localtime, datetime.datetime.now, uuid.uuid4):
    assert pickle.loads(pickle.dumps(function)) == function
    assert copy.deepcopy(function) == function
assert time.time.__name__ == "time"
assert time.time.__doc__
assert repr(time.time) == "<built-in function time>"

names = [uuid.uuid1(), uuid.uuid4(), uuid.uuid4(), uuid.uuid1(node=7)]
assert len(set(names)) == 4
assert [each.version for each in names] == [1, 4, 4, 1]
assert names[3].node == 7
found = []
thread = threading.Thread(target=lambda: found.append(time.time()))
thread.start()
thread.join()
assert about_now(found[0])
# The C function that all of this stands on tells the same.
assert about_now(ctypes.CDLL(None).time(None))
started = time.time()
while time.time() < started + 0.2:
    pass
print(sys.version_info[:2], "is well")
