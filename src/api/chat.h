/* The engine's chat template (chat.c). */
#ifndef PI__API_CHAT_H
#define PI__API_CHAT_H

#include "api/objects.h"

/* Loads the chat template. An error in the model's own template is stored in e->chat_err for pi_chat_render. */
int pi__engine_open_chat(pi_engine *e, const pi_options *o, pi_error *err);

#endif
