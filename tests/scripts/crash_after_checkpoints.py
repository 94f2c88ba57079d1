"""Makes progress, as far as the supervisor can see, and kills itself, as often as it is told.

Run as `crash_after_checkpoints.py TRIAL_DIR PROGRESS SIGNAL`: the first PROGRESS starts each leave a
new checkpoint behind, the following ones none; every start ends by SIGNAL.
"""
import os
import sys

directory, progress, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if not os.path.isdir(directory):
    os.makedirs(directory)
journal = os.path.join(directory, "starts")
with open(journal, "a") as file:
    file.write("start\n")
with open(journal) as file:
    starts = len(file.readlines())
if starts <= progress:
    os.makedirs(os.path.join(directory, "checkpoints", "batch-%010d" % starts))
os.kill(os.getpid(), number)
