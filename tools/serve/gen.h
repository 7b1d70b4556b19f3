/* Generations: client requests that the model responds to.
 *
 * A generation begins with a request body. gen_prepare parses its JSON, renders, tokenizes, and makes requests of the
 * engine, within a work budget. gen_take stores their events. gen_pump passes the new text to a WIRE, the response
 * writer of one API. A wire receives text in PIECES that end at token boundaries, so ids and probabilities match their
 * text exactly. A chat's pieces are first split into content, reasoning and tool calls (chat.h). A SINK carries the
 * written response on.
 *
 * The owner of a generation runs these steps: reply.h in the server, tools/openai in libpagedinfer-openai.
 *
 * Threads: one at a time. The owner orders the calls. */
#ifndef PAGEDINFER_SERVE_GEN_H
#define PAGEDINFER_SERVE_GEN_H

#include "serve/chat.h"
#include "serve/params.h"
#include "serve/service.h"

typedef struct gen gen;
typedef struct choice choice;

/* A step of new output of a choice, as a wire receives it. */
typedef struct piece {
    const chat_delta *delta;      /* [n_deltas] new parts, in order */
    size_t n_deltas;
    const int32_t *ids;           /* [n_ids] tokens of this text */
    size_t n_ids;
    const pi_token_prob *probs;   /* [n_ids][n_probs of the choice] log-probabilities; NULL = not requested */
    size_t text_at;               /* bytes of the choice's text before this piece */
    bool last;                    /* the choice has ended and its finish and reason are set; no piece follows */
} piece;

/* The way of a stream's output. */
typedef struct gen_sink {
    /* Sends one event of n bytes of JSON. event: its name, or NULL. Returns false if out of memory. */
    bool (*event)(gen *g, const char *event, const char *json, size_t n);
    /* Sends the end mark of OpenAI's streams. */
    void (*done)(gen *g);
} gen_sink;

typedef struct wire {
    const char *id_prefix;                       /* "chatcmpl-" */
    const char *what;                            /* name for the log: "chat" */
    /* In gen_prepare: converts a body to the fields of another API before they are read. *out is a new object. NULL =
     * the body is read as it is. */
    int (*translate)(gen *g, json_t *body, json_t **out, pi_error *err);
    /* In gen_prepare: reads the API's own fields from p->root into g->p. Returns PI_OK or an error. */
    int (*read)(gen *g, pi_error *err);
    /* For streams: called before the first piece, for each piece, and after the last piece. */
    void (*begin)(gen *g);
    void (*piece)(gen *g, choice *ch, const piece *pc);
    void (*finish)(gen *g);
    /* Writes the prompt progress of ch (ch->progress); NULL = the API has no progress events. */
    void (*progress)(gen *g, const choice *ch);
    /* Returns the complete response; NULL = out of memory. */
    json_t *(*whole)(gen *g);
    /* Writes the complete response as text, for APIs with large JSON trees; NULL = `whole` is used. Returns false if a
     * number is not finite. */
    bool (*write)(const gen *g, buf *out);
    unsigned api;                                /* API_* of the request fields (fields.h) */
    bool raw_prompt;                             /* the prompts are p->prompts, not a conversation */
    bool json_lines;                             /* a stream has one JSON object per line, no server-sent events */
} wire;

typedef struct tool_call { /* a call of a complete response */
    buf id, name, args;
} tool_call;

typedef struct prompt_probs { /* log-probabilities of a prompt's tokens, without the first */
    int32_t *ids;            /* [n] the tokens */
    pi_token_prob *probs;    /* [n][row] for each token: itself, then its alternatives */
    size_t n, row;
} prompt_probs;

typedef struct prompt_progress { /* numbers of prompt tokens */
    uint32_t n, cached, computed;
    double ms;               /* milliseconds since the prompt was started */
    bool fresh;              /* not yet written */
} prompt_progress;

struct choice {
    gen *g;
    uint32_t index;          /* index among all choices of the generation */
    pi_request *r;           /* its engine request */
    uint32_t sample;         /* number of the sample of r that is this choice */
    bool done;               /* its last event has arrived */
    bool ended;              /* its last piece was given to the wire */
    int finish;              /* PI_FINISH_* */
    const char *reason;      /* "stop", "length" or "tool_calls"; valid once done */
    pi_result res;           /* valid once done */
    buf text;                /* text received and not yet given to the wire */
    size_t text_in, text_out; /* bytes of text received so far; bytes given to the wire */
    bool bound;              /* a tool-call grammar constrains the text from byte bound_at on */
    size_t bound_at;         /* valid if bound: bytes of text received before */
    int32_t *ids;            /* [n_ids] all tokens so far */
    size_t *end;             /* [n_ids] text bytes up to the end of each token; SIZE_MAX = it ends within a character */
    size_t *chars;           /* [n_ids] text characters up to the end of each token */
    pi_token_prob *probs;    /* [n_ids][n_probs] log-probabilities */
    size_t n_ids, cap_ids, cap_end, cap_chars, cap_probs;
    size_t n_probs;          /* entries per token; 0 = none */
    size_t ids_out;          /* tokens with text given to the chat parser, or to the wire */
    size_t ids_carry;        /* tokens given to the wire; fewer than ids_out while the parser withholds text */
    utf8_hold utf8;          /* an incomplete character at the end of the tokens */
    size_t token_bytes, token_chars; /* bytes and characters of the text of all tokens so far */
    prompt_progress progress; /* used by the first choice of a prompt */
    bool has_line;           /* the text contains a newline */
    bool over;               /* canceled: t_max_predict_ms passed, or all samples of its request were cut */
    bool in_line;            /* n_indent: the last line has text after its indentation */
    bool indent_counts;      /* a line is complete, so n_indent applies to the following ones */
    bool cut;                /* n_indent ended the choice: later tokens are dropped */
    int64_t indent;          /* number of blanks at the start of the last line */
    prompt_probs prompt;     /* used by the first choice of a prompt */
    chat_reader *reader;     /* parser of a chat; NULL = all text is content */
    buf content, reasoning;  /* text given to the wire so far, for complete responses and repeated text */
    tool_call *calls;        /* [n_calls] calls given to the wire so far */
    size_t n_calls, cap_calls;
    bool cut_call;           /* the answer ended within its last call, after parts of that call were streamed */
    uint64_t token_at;       /* gen_now of its last token; 0 = no token yet */
    chat_delta *shown;       /* [cap_shown] scratch: deltas of a piece without hidden reasoning */
    size_t cap_shown;
    float *vector;           /* embeddings, concatenated if there are several, or scores; owned */
    size_t n_vector, n_vectors; /* number of values in total; number of vectors */
    int block, block_kind;   /* for wires: the open block and its type */
    size_t n_blocks;         /* number of blocks begun so far */
    size_t block_call;       /* index of the block's tool call, if it is a call */
    buf block_text;          /* the block's text so far, for wires that repeat it at the end */
};

struct gen {
    service *sv;
    const wire *w;
    const gen_sink *sink;
    void *owner;             /* for sink and owner */
    params p;
    char id[64];
    int64_t created;         /* seconds since 1970 */
    uint64_t began;          /* gen_now at the request's arrival */
    const char *key;         /* API key of the client, or NULL; the owner keeps it */
    pi_work *work;           /* work budget of the preparation; NULL = no limit */
    bool light;              /* the preparation must not decode images, and may be repeated */
    bool wants_heavy;        /* the preparation failed because it is light */
    bool over_budget;        /* the work exceeded the step or memory limit of its budget; set by the owner */
    char *salt;              /* prefix cache salt, or NULL; owned */
    const char *adapter;     /* adapter that the client names as model, or NULL; in p.root */
    pi_request **r;          /* one per prompt */
    size_t n_r;
    choice *choices;         /* n for each prompt */
    size_t n_choices, n_done, n_ended; /* choices; the ones with `done`; the ones with `ended` */
    chat_state chat;         /* chats only */
    bool is_chat, hide_thoughts;
    bool working;            /* another thread prepares or writes: gen_cancel only sets the flag */
    bool canceled;
    bool gone;               /* the client has disconnected: a cancellation is no error */
    pi_error err;            /* the error; code 0 = none */
    uint64_t first_at;       /* gen_now of the first token; 0 = no token yet */
    uint64_t n_sent;         /* for wires: number of events so far */
    char previous[72];       /* /v1/responses: previous_response_id, or "" */
    size_t n_previous;       /* items of its conversation, the first of "input" */
    const char *abort_why;   /* reason of the cancellation, for the log */
};

/* Returns nanoseconds of the monotonic clock. */
uint64_t gen_now(void);
/* Begins a generation in *g, with a new id. Its owner sets key and budget afterwards. */
void gen_init(gen *g, service *sv, const wire *w, const gen_sink *sink, void *owner);
/* Prepares everything up to the first submit. Frees the body early unless g->light. May be repeated, after
 * gen_free_parts. Returns PI_OK or an error with a text for the client. */
int gen_prepare(gen *g, buf *body, pi_error *err);
/* Submits all requests; *n is their number. The first submit compiles the shared parts. The later ones run without a
 * budget, because nothing can be repeated after the first submit. */
int gen_submit(gen *g, size_t *n, pi_error *err);
/* Stores an event of the engine in its generation. May cancel the generation, but writes nothing. */
void gen_take(const pi_event *ev);
/* True if there is output, so that a stream begins. */
bool gen_begun(const gen *g);
/* Gives new text of a choice to the wire. */
void gen_pump(choice *ch);
/* Returns the approximate size of the choice's unwritten output, in bytes. */
size_t gen_waiting(const choice *ch);
/* Returns the complete response as text; p == NULL if out of memory. */
buf gen_whole(gen *g);
/* Cancels the requests; `why` is the reason for log and client, a constant. */
void gen_cancel(gen *g, const char *why);
/* Return the "code" and "param" of an error object; NULL = none. */
const char *gen_error_code(const gen *g, const pi_error *err);
const char *gen_error_field(const gen *g, const pi_error *err);
/* Frees the engine requests, so that the engine sends no further events of them. */
void gen_free_requests(gen *g);
/* Frees everything that preparation created and resets the generation to its initial state. */
void gen_free_parts(gen *g);

/* Sets the template variables that follow from the service's settings, unless the client sets them. */
int gen_template_defaults(const service *sv, params *p, pi_error *err);
/* vocab.c: tokenizes prompts and biases that need ids, truncates prompts, and adds the biases as options. */
int gen_vocab_fields(gen *g, pi_error *err);
/* adapters.c: adds option "lora" with the adapters that the request names by field or as model. */
int gen_adapters(gen *g, pi_error *err);

/* ---- for wires */
/* Sends one stream event and takes ownership of root; root == NULL means out of memory. Returns false if out of
 * memory; g->err is then set. */
bool gen_send(gen *g, const char *event, json_t *root);
json_t *ids_json(const int32_t *ids, size_t n);
json_t *progress_json(const choice *ch);
/* Numbers of tokens, summed over all engine requests of a generation. */
typedef struct usage { uint64_t prompt, cached, completion, drafted, accepted; } usage;
usage gen_usage(const gen *g);
const char *gen_model(const gen *g);
/* Returns [{"token", "logprob", "bytes", "top_logprobs"}] for n rows of probs. */
json_t *gen_logprobs(const gen *g, const choice *ch, const pi_token_prob *probs, size_t n);
json_t *gen_timings(const choice *ch); /* llama-server's "timings" object, so far or of the complete response */

/* wire_embeddings.c: reads the texts of a field as prompts for vectors; appends a vector as JSON, false if a number is
 * not finite. */
int embeddings_read(gen *g, const char *input, pi_error *err);
bool embeddings_put(buf *b, const float *v, size_t n);

/* infill.c. infill_read reads the body of /infill. infill_prompt builds a prompt from `parts`, truncated to the
 * context, and sets it as the only prompt of g. */
int infill_read(gen *g, pi_error *err);
int infill_prompt(gen *g, const pi_infill_parts *parts, pi_error *err);

extern const wire wire_chat, wire_completions, wire_native, wire_responses, wire_messages, wire_embeddings,
                  wire_native_embeddings, wire_rerank, wire_infill, wire_ollama_chat, wire_ollama_generate,
                  wire_ollama_embed, wire_ollama_embeddings;

#endif
