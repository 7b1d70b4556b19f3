/* States of selective scans on the CPU (scan.c), for the functions that handle states of any kind (gdn.c). */
#ifndef PI__CPU_SCAN_H
#define PI__CPU_SCAN_H

#include "backend/cpu/cpu.h"

/* As pi__device.state_bytes and snapshot_bytes. */
size_t pi__cpu_scan_state_bytes(const pi__state_layer *st);
size_t pi__cpu_scan_snapshot_bytes(const pi__state_layer *st);
/* Ops state_save and state_load. */
void pi__cpu_scan_state_save(pi__backend *be, const pi__state_copy *a);
void pi__cpu_scan_state_load(pi__backend *be, const pi__state_copy *a);

#endif
