/* Fuzzes request bodies: the first byte selects the API that parses the rest. A refusal has a message. An accepted
 * body has options with texts, and prompts or messages. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/convert.h"
#include "serve/fields.h"
#include "serve/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* APIs by the value of the first byte, a digit. */
static const unsigned apis[8] = {API_TEXT, API_MESSAGES,  API_RESPONSES, API_RERANK,
                                 API_CHAT, API_RESPONSES, API_RESPONSES, API_RESPONSES};

static int read_as(int api, params *p, pi_error *err)
{
    switch (api) {
    case 0: return params_prompts(p, "prompt", err);
    case 1: return convert_anthropic(p, err);
    case 3: return params_pairs(p, "query", "documents", err);
    case 4: return convert_chat(p, err);
    default: return convert_responses(p, err);
    }
}

static void look(const params *p, int api)
{
    if (p->n < 1 || p->n > 64 || p->logprobs < -1 || p->logprobs > 1024) __builtin_trap();
    for (size_t i = 0; i < p->n_option; i++) {
        if (!p->option[i].key || !p->option[i].field || !p->option[i].value) __builtin_trap();
    }
    for (size_t i = 0; i < p->n_prompts; i++) {
        const prompt *one = &p->prompts[i];
        if (!!one->text + !!one->ids + !!one->mixed != 1 || !one->query != (api != 3)) __builtin_trap();
    }
    if (api == 0 || api == 3 ? !p->n_prompts : !json_is_array(p->messages) || !json_array_size(p->messages))
        __builtin_trap();
    if (p->tools && !json_array_size(p->tools)) __builtin_trap();
}

/* Writes the parsed value and parses it again; the result must be equal. */
static void look_at_text(const json_t *root)
{
    char *one = json_write(root, 0);
    json_fault f;
    json_t *again = one ? json_read(one, strlen(one), &f) : NULL;
    char *two = json_write(again, 0);
    if (!one || !again || !two || strcmp(one, two) != 0) __builtin_trap();
    json_decref(again);
    free(one);
    free(two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    params p;
    pi_error err = {0};
    if (!size) return 0;
    json_t *root = params_parse((const char *) data + 1, size - 1, &err);
    if (!root && (!err.code || !err.msg[0])) __builtin_trap();
    if (!root) return 0;
    look_at_text(root);
    int rc = params_read(&p, root, apis[data[0] & 7], &err);
    if (!rc) rc = read_as(data[0] & 7, &p, &err);
    if (!rc) look(&p, data[0] & 7);
    else if (rc != err.code || !err.msg[0]) __builtin_trap();
    params_free(&p);
    return 0;
}
