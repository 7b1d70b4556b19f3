/* States of short convolutions on the CPU (short_conv.c), for the functions that handle states of any kind (gdn.c). */
#ifndef PI__CPU_SHORT_CONV_H
#define PI__CPU_SHORT_CONV_H

#include "backend/cpu/cpu.h"

/* As pi__device.state_bytes and snapshot_bytes. */
size_t pi__cpu_conv_state_bytes(const pi__state_layer *st);
size_t pi__cpu_conv_snapshot_bytes(const pi__state_layer *st);
/* Ops state_save and state_load. */
void pi__cpu_conv_state_save(const pi__state_copy *a);
void pi__cpu_conv_state_load(const pi__state_copy *a);

#endif
