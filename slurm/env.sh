# shellcheck shell=bash
# Facts of this site; the job scripts hold none. Sourced by them, in the folder where sbatch was typed.
# Every value can also come from the environment of `sbatch`, which wins over this file.
# Partition and account are Slurm's own variables: export SBATCH_PARTITION=gpu SBATCH_ACCOUNT=mygroup

# Modules to load, for example "gcc/13 openmpi/4.1.6 hdf5/1.14". Use the ones the build used.
: "${TRIREME_MODULES:=}"
# Where the programs are, and where runs go (a parallel file system with room for checkpoints).
: "${TRIREME_BIN:=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")/build/release/bin}"
: "${TRIREME_RUNS:=runs}"
# What srun starts before the program: empty, or a container, for example "apptainer exec --nv --env 'A=b c' image.sif"; or srun's own
# options for one, "--container-image=image.sqsh" (slurm/containers).
: "${TRIREME_LAUNCH:=}"
# How Slurm and MPI find each other: `srun --mpi=list` shows what this cluster has.
: "${TRIREME_MPI:=pmix}"
# So many legs of a run in a row may bring nothing (no committed step, or less training than the start took) before its jobs
# give up; "unlimited": any number. Legs that help are not counted.
: "${TRIREME_MAX_FAILURES:=3}"
# So long a job that has ended waits for a silent controller, in seconds.
: "${TRIREME_CONTROLLER_WAIT:=600}"
# Nodes that a training job has more than it uses. After a lost rank or node the same job starts its step again on the others:
#   TRIREME_SPARES=1 sbatch --no-kill --nodes=3 ...      trains on two; 0: again on the same nodes. Empty: back to the queue.
: "${TRIREME_SPARES:=}"
# A command that gets what is decided after each leg as one line of JSON, for example
#   curl -s -H 'Content-Type: application/json' -d @- https://example.org/hook
: "${TRIREME_NOTIFY:=}"
export TRIREME_MAX_FAILURES

# NCCL and MPI between nodes. On a cluster with several networks name the fast one, for example
#   NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5 OMPI_MCA_btl_tcp_if_include=ib0
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
# So many seconds the ranks of a step may wait for each other in MPI_Init and at the end, by Slurm's own count (else 300). The program
# ends a start before (train.start_timeout_s), and says which ranks are missing; give more here where that is more.
export SLURM_PMIX_TIMEOUT="${SLURM_PMIX_TIMEOUT:-900}"
# Lets ranks in a container without munge talk to Slurm's PMIx server.
export PMIX_MCA_psec="${PMIX_MCA_psec:-native}"

if [[ -n $TRIREME_MODULES ]]; then
  # Module scripts of many sites read unset variables.
  set +u
  # shellcheck disable=SC2086  # a list of words
  module load $TRIREME_MODULES
  set -u
fi
