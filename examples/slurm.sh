#!/bin/bash
# A training that Slurm may stop at its time limit, or preempt, and that goes on exactly where it was.
#
#   sbatch slurm.sh
#
# Sixty seconds before the limit Slurm sends SIGUSR1 to this script (B:), which passes it on. pedl-run finishes the
# running batch, takes a checkpoint, and ends with the code that was chosen for it; then the same job is queued again.
#SBATCH --job-name=train
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append

pedl-run --grace 50 --preempt-exit-code 99 train.py &
run=$!
trap 'kill -USR1 "$run"' USR1
trap 'kill -TERM "$run"' TERM

# A signal ends a `wait`, not the run. The last one tells how that ended, which bash remembers.
while kill -0 "$run" 2>/dev/null; do
    wait "$run"
done
wait "$run"
code=$?

# Every other code is the script's, or says that another start would end in the same way.
if [ "$code" -eq 99 ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
