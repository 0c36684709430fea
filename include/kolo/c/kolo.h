// SPDX-License-Identifier: Apache-2.0
// Kolo for programs in C99 or older C++, and for languages that call C. docs/c.md is the guide.
#ifndef KOLO_C_KOLO_H
#define KOLO_C_KOLO_H

#include "kolo/c/checkpoint.h"
#include "kolo/c/collectives.h"
#include "kolo/c/diagnostics.h"
#include "kolo/c/elastic.h"
#include "kolo/c/error.h"
#include "kolo/c/grouped.h"
#include "kolo/c/optimizer.h"
#include "kolo/c/process_set.h"
#include "kolo/c/request.h"
#include "kolo/c/session.h"
#include "kolo/c/types.h"

#endif
