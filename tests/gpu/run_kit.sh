#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs gpu-check with the programs of this kit. Usage: run [OPTIONS OF GPU-CHECK]
kit=$(cd "$(dirname "$0")" && pwd) || exit 1

# Libraries that other programs of the system may need in a newer version: only those it lacks.
lacking=$(mktemp -d) || exit 1
trap 'rm -rf "$lacking"' EXIT
for library in "$kit"/fallback/lib/*; do
  name=${library##*/} found=
  for folder in /lib /lib64 /usr/lib /usr/lib64 /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu; do
    if [ -e "$folder/$name" ]; then found=1; fi
  done
  [ -n "$found" ] || ln -s "$library" "$lacking/$name"
done
export LD_LIBRARY_PATH="$kit/lib:$lacking${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# For programs with LibTorch, whose libraries would load an NCCL of their own.
if [ -e "$kit/lib/libnccl.so.2" ]; then export KOLO_KIT_NCCL="$kit/lib/libnccl.so.2"; fi

# Open MPI and PMIx were compiled for other folders. One host, with shared memory and TCP.
pmix=$kit/mpi/usr/lib/x86_64-linux-gnu/pmix2
export OPAL_PREFIX="$kit/mpi/usr" OPAL_SYSCONFDIR="$kit/mpi/etc/openmpi"
export PMIX_PREFIX="$pmix" PMIX_LIBDIR="$pmix/lib" PMIX_PKGLIBDIR="$pmix/lib/pmix"
export PMIX_DATADIR="$pmix/share" PMIX_PKGDATADIR="$pmix/share/pmix"
export PMIX_SYSCONFDIR="$kit/mpi/etc/openmpi"
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_osc=^ucx,pt2pt
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_plm=isolated
export OMPI_MCA_btl_base_warn_component_unused=0 OMPI_MCA_mca_base_component_show_load_errors=0
export OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_btl_vader_backing_directory="${TMPDIR:-/tmp}"
# Some virtual machines show no topology of their processors.
if [ ! -d /sys/devices/system/cpu/cpu0/topology ]; then
  export HWLOC_SYNTHETIC="core:$(nproc) pu:1"
fi

python=$(command -v python3) || {
  python=$kit/fallback/python/bin/python3
  export PYTHONHOME="$kit/fallback/python"
}
export PYTHONDONTWRITEBYTECODE=1
"$python" "$kit/tests/gpu/check.py" --programs "$kit/bin" --mpirun "$kit/mpi/usr/bin/mpirun" "$@"
