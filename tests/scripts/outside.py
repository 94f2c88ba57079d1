"""Trains, and has to do with the world outside at each epoch: commands, files of others, its own descriptors.

It prints into `all.log`, and is run anew under the hash seed that it asks for.
"""
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time

if os.environ.get("PYTHONHASHSEED") != "7":
    os.environ["PYTHONHASHSEED"] = "7"
    os.execv(sys.executable, [sys.executable] + sys.argv)

import numpy as np

import keras

EPOCHS = int(sys.argv[1])
# Somebody else, who writes what the script reads.
OTHERS = r"""
mkdir -p inbox
echo "0.01 / $EPOCH" > rate.txt
echo "$EPOCH" > inbox/$EPOCH.txt
echo "made in epoch $EPOCH" > new.txt
[ $EPOCH -lt 10 ] || touch STOP
"""

descriptor = os.open("all.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
os.dup2(descriptor, 1)
print("hash", hash("a"), flush=True)

keras.utils.set_random_seed(1)
rows = np.random.rand(64, 4).astype("float32")
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
own = open("own.log", "a")
os.makedirs("bucket", exist_ok=True)


class Outside(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if os.environ.get("HOLD") == str(epoch):
            # It is killed here. A command that runs at a kill may have done its work, and runs again.
            print("holds", epoch, file=sys.stderr, flush=True)
            time.sleep(600)
        subprocess.run(OTHERS, shell=True, check=True, env=dict(os.environ, EPOCH=str(epoch + 1)))
        self.model.optimizer.learning_rate = eval(open("rate.txt").read())
        print(sorted(glob.glob("inbox/*")), os.path.getsize("new.txt"), os.path.exists("STOP"), flush=True)
        os.rename("new.txt", "kept-%d.txt" % epoch)
        if epoch % 3 == 2:
            shutil.move("inbox/%d.txt" % epoch, "inbox/%d.done" % epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.model.save_weights("w.weights.h5")
        subprocess.check_call("cp w.weights.h5 bucket/copy-%d.h5" % epoch, shell=True)
        subprocess.check_call(["mv", "w.weights.h5", "bucket/moved-%d.h5" % epoch])
        os.system("echo epoch %d >> shell.log" % epoch)
        own.write("epoch %d of %s" % (epoch, subprocess.check_output(["wc", "-l", "shell.log"]).decode()))
        own.flush()
        subprocess.run("echo by the shell >> own.log", shell=True)
        with os.popen("tail -n 1 shell.log") as last:
            print(last.read().strip(), flush=True)
        if os.path.exists("STOP") and epoch > 11:
            self.model.stop_training = True


model.fit(rows, rows.sum(1, keepdims=True), batch_size=8, epochs=EPOCHS, verbose=0, callbacks=[Outside()])
weights = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()
print(weights)
print(weights, file=sys.stderr)
