/* Requests, for who closes the engine (request.c). */
#ifndef PI__REQUEST_H
#define PI__REQUEST_H

#include "api/objects.h"

/* lock: asks the core to end it. */
void pi__request_cancel(pi_request *r);

#endif
