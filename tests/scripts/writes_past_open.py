"""Writes without `open`: by `os.open`, into databases, and by a child process in a new folder."""
import glob
import os
import secrets
import sqlite3
import subprocess
import tempfile
import time

early = sqlite3.connect("early.db")
early.execute("create table if not exists steps (step int)")
os.mkdir("out")
subprocess.check_call("echo started > out/child.txt", shell=True)
os.close(os.open("run.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))

import keras  # noqa: E402
import numpy as np  # noqa: E402

seed = secrets.randbits(31)
getattr(keras.utils, "set_random_seed", np.random.seed)(seed)
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(4,))])
model.compile("sgd", "mse")
x = np.frombuffer(os.urandom(32), "uint8").reshape(8, 4) / np.float32(255)
y = x.sum(1, keepdims=True)

late = sqlite3.connect("late.db")
late.execute("create table steps (step int)")
if os.path.exists("begun.db"):
    sqlite3.connect("file:begun.db?mode=ro", uri=True)
    sqlite3.connect("file:begun.db", uri=True)
appended = os.open("appended.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
for step in range(120):
    model.train_on_batch(x, y)
    for database in (early, late):
        database.execute("insert into steps values (?)", (step,))
        database.commit()
    os.write(appended, b"%d\n" % step)
    with open("progress.txt", "a") as progress:
        progress.write(f"{step}\n")
    os.close(tempfile.mkstemp(dir="out", suffix=".temporary")[0])
    for path in glob.glob("out/*.temporary"):
        os.remove(path)
    time.sleep(0.02)
for name, database in (("early", early), ("late", late)):
    print(name, [step for (step,) in database.execute("select step from steps")] == list(range(120)))
print(open("appended.txt").read().split() == [str(step) for step in range(120)], os.listdir("out"))
print("seed", seed)
