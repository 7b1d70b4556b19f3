/* A first program: one request from a conversation, printed as it is generated. docs/EMBEDDING.md explains each step.
 *
 *     first MODEL.gguf '[{"role": "user", "content": "What is a lighthouse for?"}]'
 */
#include <pagedinfer.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    pi_error err = {0};
    pi_options *options = pi_options_new();
    pi_engine *engine = NULL;
    pi_request *request = NULL;
    if (argc != 3 || !options) return 2;

    if (pi_options_set(options, "model", argv[1], &err) || pi_engine_open(&engine, options, &err)) goto out;
    request = pi_request_new(engine);
    if (!request || pi_request_set(request, "max-tokens", "128", &err) ||
        pi_request_prompt_chat(request, argv[2], NULL, NULL, &err) /* applies the model's chat template */ ||
        pi_request_submit(request, &err)) goto out;

    pi_event *events[16];
    for (int n; (n = pi_poll(engine, events, 16, -1)) > 0;) { /* 0 = all requests have ended */
        for (int i = 0; i < n; i++) {
            fwrite(events[i]->text, 1, events[i]->text_len, stdout);
            if (events[i]->kind == PI_EVENT_DONE) err.code = events[i]->code;
            pi_event_release(events[i]);
        }
        fflush(stdout);
    }
out:
    if (err.code) fprintf(stderr, "%s: %s\n", argv[0], err.msg[0] ? err.msg : pi_strerror(err.code));
    pi_request_free(request);
    pi_engine_close(engine);
    pi_options_free(options);
    return err.code ? 1 : 0;
}
