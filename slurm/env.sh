# shellcheck shell=bash
# All settings of the job scripts with their defaults. The job scripts source this file in the directory where sbatch was typed.
# Every value can also be set in the environment of `sbatch` or in a settings file (lib/settings.sh); both win over this file.
# In a checkout, you may also edit this file.
# Partition and account have Slurm's own variables: export SBATCH_PARTITION=gpu SBATCH_ACCOUNT=mygroup

# Modules to load, for example "gcc/13 openmpi/4.1.6 hdf5/1.14". Use the modules of the build.
: "${TRIREME_MODULES:=}"
# Directory of the programs, and directory for runs (on a parallel file system with space for checkpoints).
: "${TRIREME_BIN:=$(programs_directory)}"
: "${TRIREME_RUNS:=runs}"
# Command that srun puts before the program: empty, or a container, for example "apptainer exec --nv --env 'A=b c' image.sif"; or srun's
# own options for a container, "--container-image=image.sqsh" (slurm/containers).
: "${TRIREME_LAUNCH:=}"
# Interface between Slurm and MPI; `srun --mpi=list` shows those of this cluster.
: "${TRIREME_MPI:=pmix}"
# Number of attempts in a row without progress (no committed step, or less training time than the start took) after which the jobs of a
# run stop; or "unlimited". Attempts with progress are not counted.
: "${TRIREME_MAX_FAILURES:=3}"
# Seconds that a finished job waits for a controller that does not answer.
: "${TRIREME_CONTROLLER_WAIT:=600}"
# Number of spare nodes of a training job. After a lost rank or node, the same job restarts its processes on the other nodes:
#   TRIREME_SPARES=1 sbatch --no-kill --nodes=3 ...      trains on two nodes; 0: restart on the same nodes; empty: requeue the job.
: "${TRIREME_SPARES:=}"
# Command that receives the decision after each attempt as one line of JSON on standard input, for example
#   curl -s -H 'Content-Type: application/json' -d @- https://example.org/hook
: "${TRIREME_NOTIFY:=}"
export TRIREME_MAX_FAILURES

# NCCL and MPI between nodes. On a cluster with several networks, name the fast one, for example
#   NCCL_SOCKET_IFNAME=ib0 NCCL_IB_HCA=mlx5 OMPI_MCA_btl_tcp_if_include=ib0
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
# Seconds that Slurm lets the ranks of a step wait for each other in MPI_Init and at the end (default 300). The program ends a start
# earlier (train.start_timeout_s) and names the missing ranks. Keep this value above that limit.
export SLURM_PMIX_TIMEOUT="${SLURM_PMIX_TIMEOUT:-900}"
# Allows ranks in a container without munge to talk to Slurm's PMIx server.
export PMIX_MCA_psec="${PMIX_MCA_psec:-native}"

if [[ -n $TRIREME_MODULES ]]; then
  # The module scripts of many sites read unset variables.
  set +u
  # shellcheck disable=SC2086  # a list of words
  module load $TRIREME_MODULES
  set -u
fi
