// SPDX-License-Identifier: Apache-2.0
// All of Kolo except the headers for LibTorch (`kolo/torch.hpp`), MPI (`kolo/mpi.hpp`) and GPUs
// (`kolo/cuda.hpp`).
#pragma once

#include "kolo/collectives.hpp"
#include "kolo/communication_hook.hpp"
#include "kolo/diagnostics.hpp"
#include "kolo/elastic.hpp"
#include "kolo/error.hpp"
#include "kolo/future.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/process_set.hpp"
#include "kolo/session.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "kolo/shared_memory.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/tensor.hpp"
#include "kolo/training.hpp"
#include "kolo/version.hpp"
