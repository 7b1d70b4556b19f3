/* The engine's chat template (chat.c). */
#ifndef PI__API_CHAT_H
#define PI__API_CHAT_H

#include "api/objects.h"

/* Loads the template of the options or of the model into e->chat. An error in the model's own template does not fail:
 * it is stored in e->chat_err, which pi_chat_render returns. */
int pi__engine_open_chat(pi_engine *e, const pi_options *o, pi_error *err);

#endif
