/* Images in prompts (image_prompt.c). */
#ifndef PI__API_IMAGE_PROMPT_H
#define PI__API_IMAGE_PROMPT_H

#include "api/objects.h"
#include "model/tower.h"

/* Returns the engine's vision model; NULL = the engine reads no images. */
const pi__tower *pi__engine_tower(const pi_engine *e);
/* PI_EUNSUPPORTED: e reads no images; err names the remedy. */
int pi__image_check(const pi_engine *e, pi_error *err);
/* Replaces each id -1 - i by the tokens of image i, and sets r->spans. bare: also adds the plain text around images
 * that models expect; otherwise the ids have it already. PI_EINVAL: the ids do not hold each image of r once; ids are
 * then unchanged. */
int pi__image_expand(pi_request *r, pi__ids *ids, bool bare, pi_error *err);

#endif
