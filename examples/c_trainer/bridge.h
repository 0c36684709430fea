/* SPDX-License-Identifier: Apache-2.0 */
/* Kolo for a program in C or in older C++: the calls that bridged.c needs. A function that returns
 * an int returns 0, or -1 after it has printed the error; then end the program. */
#ifndef BRIDGE_H
#define BRIDGE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int bridge_start(int argc, char** argv);
void bridge_end(void);
int bridge_rank(void);
int bridge_size(void);

/* Copies the values of rank 0 to all ranks. Call it on all ranks. */
int bridge_broadcast(float* values, size_t count);
/* Replaces each value by its sum over the ranks. Call it on all ranks. */
int bridge_sum(float* values, size_t count);

#ifdef __cplusplus
}
#endif

#endif
