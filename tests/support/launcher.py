# SPDX-License-Identifier: Apache-2.0
"""What differs between the mpirun of Open MPI and that of MPICH."""

import functools
import subprocess


@functools.cache
def option_for_survivors(mpirun):
    """With this option mpirun does not end the other ranks when one is killed."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    return "-disable-auto-cleanup" if "HYDRA" in version else "--enable-recovery"
