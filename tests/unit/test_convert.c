/* Conversations of the HTTP APIs as chat messages (tools/serve/convert*.c). Each row has a request and the resulting
 * messages, tools or template variables, or words of the error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "serve/convert.h"

#define USER "{\"role\": \"user\", \"content\": \"hi\"}"
#define FN "\"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}"

struct row {
    const char *request, *messages, *tools, *vars; /* JSON; NULL = not checked, "" = NULL */
    const char *error;                             /* words of the error; NULL = accepted */
    const char *left_out;                          /* NULL = not checked */
};

static void same(const char *what, const char *request, const json_t *got, const char *want)
{
    json_t *w = want && *want ? json_loads(want, JSON_DECODE_ANY, NULL) : NULL;
    char *text = got ? json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (want && *want) assert_non_null(w);
    if (want && !(w ? json_equal(w, (json_t *) got) : !got)) fail_msg("%s of %s: %s, not %s", what, request,
        text, want);
    free(text);
    json_decref(w);
}

static void check(int (*convert)(params *, pi_error *), const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];
        params p;
        pi_error err = {0};
        json_t *root = json_loads(r->request, 0, NULL);
        if (!root) fail_msg("not JSON: %s", r->request);
        int rc = params_read(&p, root, 0, &err);
        if (!rc) rc = convert(&p, &err);
        if (!!rc != !!r->error) fail_msg("%s: %d %s", r->request, rc, err.msg);
        if (r->error && !strstr(err.msg, r->error)) fail_msg("%s: '%s' does not say '%s'", r->request, err.msg,
            r->error);
        if (!rc) {
            same("messages", r->request, p.messages, r->messages);
            same("tools", r->request, p.tools, r->tools);
            same("variables", r->request, p.template_vars, r->vars);
            if (r->left_out) assert_string_equal(p.left_out.p ? p.left_out.p : "", r->left_out);
        }
        params_free(&p);
    }
}
#define CHECK(convert, rows) check(convert, rows, sizeof(rows) / sizeof *(rows))

/* An Anthropic request with one user message of these blocks. */
#define BLOCKS(...) "{\"messages\": [{\"role\": \"user\", \"content\": [" __VA_ARGS__ "]}]}"
#define SAYS(text) "[{\"role\": \"user\", \"content\": \"" text "\"}]"
#define PNG "{\"type\": \"image\", \"source\": {\"type\": \"base64\", \"media_type\": \"image/png\", \"data\":" \
    " \"eA==\"}}"
#define PDF "{\"type\": \"document\", \"source\": {\"type\": \"base64\", \"media_type\": \"application/pdf\"," \
    " \"data\": \"eA==\"}}"

static void anthropic_messages_become_chat_messages(void **state)
{
    (void) state;
    static const struct row rows[] = {
        {"{\"system\": \"a\", \"messages\": [" USER ", {\"role\": \"system\", \"content\": [{\"type\":"
            " \"text\", \"text\": \"b\"}]}]}",
         .messages = "[{\"role\": \"system\", \"content\": \"a\"}, " USER ", {\"role\": \"system\","
             " \"content\": \"b\"}]"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", .error = "user, assistant or system"},
        {"{\"messages\": []}", .error = "non-empty"},
        {BLOCKS("{\"type\": \"text\", \"text\": \"a\", \"cache_control\": {\"type\": \"ephemeral\"}},"
            " {\"type\": \"text\", \"text\": \"b\"}"),
         .messages = SAYS("ab")},
        {BLOCKS("{\"type\": \"document\", \"title\": \"T\", \"context\": null, \"source\": {\"type\": \"text\","
            " \"media_type\": "
                "\"text/plain\", \"data\": \"words\"}}, {\"type\": \"text\", \"text\": \"q\"}"),
         .messages = SAYS("<document>\\n<title>T</title>\\nwords\\n</document>\\nq")},
        {BLOCKS("{\"type\": \"document\", \"source\": {\"type\": \"content\", \"content\": [{\"type\":"
            " \"text\", \"text\": \"words\"}]}}"),
         .messages = SAYS("<document>\\nwords\\n</document>\\n")},
        {BLOCKS("{\"type\": \"document\", \"source\": {\"type\": \"base64\", \"media_type\": \"text/plain\","
            " \"data\": \"w7xi\\nZXI=\"}}"),
         .messages = SAYS("<document>\\n\u00fcber\\n</document>\\n")},
        {BLOCKS("{\"type\": \"document\", \"source\": {\"type\": \"base64\", \"media_type\": \"text/plain\","
            " \"data\": \"/w==\"}}"),
         .error = "base64 of UTF-8"},
        {BLOCKS("{\"type\": \"document\", \"source\": {\"type\": \"base64\", \"media_type\": \"text/plain\","
            " \"data\": \"a\"}}"),
         .error = "base64 of UTF-8"},
        {BLOCKS("{\"type\": \"document\", \"source\": {\"type\": \"url\", \"url\": \"http://x/y\"}}"), .error =
            "document that is not text"},
        {BLOCKS(PDF), .error = "PDF document"},
        {BLOCKS(PNG), .error = "an image, which is not supported"},
        {BLOCKS("{\"type\": \"search_result\", \"source\": \"s\", \"title\": \"t\", \"content\": [{\"type\":"
            " \"text\", \"text\": \"w\"}]}"),
         .messages = SAYS("<search_result>\\n<source>s</source>\\n<title>t</title>\\nw\\n</search_result>\\n")},
        {BLOCKS("{\"type\": \"tool_result\", \"tool_use_id\": \"1\", \"content\": [{\"type\": \"text\","
            " \"text\": \"a \"}, " PNG ", " PDF
                ", {\"type\": \"browser_state\"}]}, {\"type\": \"text\", \"text\": \"go on\"}"),
         .messages = "[{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"a [image omitted: this"
             " server reads text only]"
                     "[PDF document omitted: this server reads text only][part of type browser_state omitted:"
                         " this server reads "
                     "text only]\"}, {\"role\": \"user\", \"content\": \"go on\"}]"},
        {BLOCKS("{\"type\": \"tool_result\", \"tool_use_id\": \"1\", \"is_error\": true}"),
         .messages = "[{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"The tool failed.\"}]"},
        {"{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\","
            " \"thinking\": \"t\", \"signature\": "
         "\"s\"}, {\"type\": \"redacted_thinking\", \"data\": \"x\"}, {\"type\": \"server_tool_use\", \"id\":"
             " \"a\", \"name\": "
         "\"web_search\", \"input\": {}}, {\"type\": \"web_search_tool_result\", \"tool_use_id\": \"a\","
             " \"content\": []}, "
         "{\"type\": \"text\", \"text\": \"w\"}, {\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"f\","
             " \"input\": {\"a\": 1}}]}]}",
         .messages = "[" USER ", {\"role\": \"assistant\", \"content\": \"w\", \"reasoning_content\": \"t\","
             " \"tool_calls\": [{\"id\": "
                     "\"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\":"
                         " \"{\\\"a\\\":1}\"}}]}]",
         .left_out = "server_tool_use, web_search_tool_result"},
    };
    CHECK(convert_anthropic, rows);
}

#define ASK(more) "{\"messages\": [" USER "], " more "}"
#define TOOLS "\"tools\": [{\"name\": \"f\", \"input_schema\": {\"type\": \"object\"}}, {\"type\": \"custom\"," \
    " \"name\": \"g\", " \
              "\"description\": \"d\", \"input_schema\": {\"type\": \"object\"}}, {\"type\":" \
                  " \"web_search_20250305\", \"name\": \"web_search\"}]"
#define F "{\"type\": \"function\", " FN "}"
#define G "{\"type\": \"function\", \"function\": {\"name\": \"g\", \"description\": \"d\", \"parameters\":" \
    " {\"type\": \"object\"}}}"

static void anthropic_tools_and_thinking(void **state)
{
    (void) state;
    static const struct row rows[] = {
        {ASK(TOOLS), .tools = "[" F ", " G "]", .vars = "{}", .left_out = "web_search_20250305"},
        {ASK(TOOLS ", \"tool_choice\": {\"type\": \"none\"}"), .tools = ""},
        {ASK(TOOLS ", \"tool_choice\": {\"type\": \"auto\"}"), .vars = "{}"},
        {ASK(TOOLS ", \"tool_choice\": {\"type\": \"any\", \"disable_parallel_tool_use\": true}"),
         .vars = "{\"tool_choice\": \"required\", \"parallel_tool_calls\": false}"},
        {ASK(TOOLS ", \"tool_choice\": {\"type\": \"tool\", \"name\": \"g\"}"),
         .vars = "{\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"g\"}}}"},
        {ASK(TOOLS ", \"tool_choice\": {\"type\": \"tool\", \"name\": \"web_search\"}"), .error = "not a function"
            " in 'tools'"},
        {ASK(TOOLS ", \"tool_choice\": {\"type\": \"tool\"}"), .error = "tool with a name"},
        {ASK(TOOLS ", \"tool_choice\": \"any\""), .error = "must be an object"},
        {ASK("\"tool_choice\": {\"type\": \"any\"}"), .error = "'tools' has no function"},
        {ASK("\"tools\": [{\"input_schema\": {}}]"), .error = "without a name"},
        {ASK("\"mcp_servers\": [{\"type\": \"url\", \"url\": \"http://x\", \"name\": \"m\"}]"), .tools = "",
            .left_out = "mcp_servers"},
        {ASK("\"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 1024}"), .vars = "{\"enable_thinking\":"
            " true}"},
        {ASK("\"thinking\": {\"type\": \"adaptive\", \"display\": \"omitted\"}"), .vars =
            "{\"enable_thinking\": true}"},
        {ASK("\"thinking\": {\"type\": \"disabled\"}"), .vars = "{\"enable_thinking\": false}"},
        {ASK("\"thinking\": {\"type\": \"never\"}"), .error = "enabled, adaptive or disabled"},
        {ASK("\"output_config\": {\"effort\": \"high\"}"), .vars = "{\"reasoning_effort\": \"high\"}"},
        {ASK("\"output_config\": {\"format\": {\"type\": \"xml\"}}"), .error = "type xml"},
        {ASK("\"output_config\": {\"format\": {\"type\": \"json_schema\"}}"), .error = "needs a schema"},
        {ASK("\"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": {}}}, \"output_format\":"
            " {\"type\": "
             "\"json_schema\", \"schema\": {\"type\": \"object\"}}"), .error = "differ"},
    };
    CHECK(convert_anthropic, rows);
}

static void formats_become_options(void **state)
{
    (void) state;
    static const char *const requests[] = {
        ASK("\"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": {\"type\": \"object\"}}}"),
        ASK("\"output_format\": {\"type\": \"json_schema\", \"schema\": {\"type\": \"object\"}}"),
        "{\"input\": \"a\", \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"n\", \"schema\":"
            " {\"type\": \"object\"}}}}",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        params p;
        pi_error err = {0};
        assert_int_equal(params_read(&p, json_loads(requests[i], 0, NULL), 0, &err), 0);
        assert_int_equal((i < 2 ? convert_anthropic : convert_responses)(&p, &err), 0);
        assert_string_equal(params_value(&p, "json-schema"), "{\"type\":\"object\"}");
        params_free(&p);
    }
}

#define IN(...) "{\"input\": [" __VA_ARGS__ "]}"
#define CALLED "{\"role\": \"assistant\", \"content\": \"w\", \"reasoning_content\": \"t\", \"tool_calls\":" \
    " [{\"id\": \"1\", \"type\": " \
               "\"function\", \"function\": {\"name\": \"mcp__g\", \"arguments\": \"{}\"}}]}"

static void responses_items_become_chat_messages(void **state)
{
    (void) state;
    static const struct row rows[] = {
        {"{\"input\": \"hi\", \"instructions\": \"a\"}", .messages = "[{\"role\": \"system\", \"content\":"
            " \"a\"}, " USER "]"},
        {"{\"instructions\": \"a\", \"input\": [{\"role\": \"developer\", \"content\": \"b\"}, " USER "]}",
         .messages = "[{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"developer\", \"content\": \"b\"},"
             " " USER "]"},
        {IN("{\"type\": \"message\", \"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\":"
            " \"hi\"}]}"), .messages = "[" USER "]"},
        {IN("{\"role\": \"user\", \"content\": [{\"type\": \"input_image\", \"image_url\": \"data:\"}]}"),
            .error = "an image"},
        {IN("{\"role\": \"user\", \"content\": [{\"type\": \"input_file\", \"file_id\": \"1\"}]}"), .error = "a"
            " file"},
        {IN(USER ", {\"type\": \"reasoning\", \"summary\": [], \"content\": [{\"type\": \"reasoning_text\","
            " \"text\": \"t\"}]}, {\"type\": "
            "\"message\", \"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", \"text\":"
                " \"w\"}]}, {\"type\": "
            "\"function_call\", \"call_id\": \"1\", \"namespace\": \"mcp\", \"name\": \"g\", \"arguments\":"
                " \"{}\"}, {\"type\": "
            "\"function_call_output\", \"call_id\": \"1\", \"output\": [{\"type\": \"input_text\", \"text\":"
                " \"r\"}, {\"type\": "
            "\"input_image\", \"image_url\": \"x\"}]}"),
         .messages = "[" USER ", " CALLED ", {\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\":"
             " \"r[image omitted: this server "
                     "reads text only]\"}]"},
        {IN(USER ", {\"type\": \"custom_tool_call\", \"call_id\": \"1\", \"name\": \"apply_patch\", \"input\":"
            " \"p\"}, {\"type\": "
            "\"custom_tool_call_output\", \"call_id\": \"1\", \"output\": \"ok\"}"),
         .messages = "[" USER ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"1\","
             " \"type\": \"function\", "
                     "\"function\": {\"name\": \"apply_patch\", \"arguments\":"
                         " \"{\\\"input\\\":\\\"p\\\"}\"}}]}, {\"role\": \"tool\", "
                     "\"tool_call_id\": \"1\", \"content\": \"ok\"}]"},
        {IN(USER ", {\"type\": \"local_shell_call\", \"call_id\": \"1\", \"action\": {\"command\": [\"ls\"]}},"
            " {\"type\": "
            "\"local_shell_call_output\", \"id\": \"1\", \"output\": \"x\"}"),
         .messages = "[" USER ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"1\","
             " \"type\": \"function\", "
                     "\"function\": {\"name\": \"local_shell\", \"arguments\":"
                         " \"{\\\"command\\\":[\\\"ls\\\"]}\"}}]}, {\"role\": "
                     "\"tool\", \"tool_call_id\": \"1\", \"content\": \"x\"}]"},
        {IN(USER ", {\"type\": \"mcp_call\", \"id\": \"1\", \"name\": \"f\", \"arguments\": \"{}\", \"output\":"
            " \"x\"}"),
         .messages = "[" USER ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"1\","
             " \"type\": \"function\", "
                     "\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\","
                         " \"tool_call_id\": \"1\", "
                     "\"content\": \"x\"}]"},
        {IN("{\"type\": \"web_search_call\", \"id\": \"1\", \"status\": \"completed\"}, {\"type\":"
            " \"item_reference\", \"id\": \"2\"}, " USER),
         .messages = "[" USER "]", .left_out = "web_search_call, item_reference"},
        {IN(USER ", {\"type\": \"reasoning\", \"summary\": [{\"type\": \"summary_text\", \"text\": \"t\"}]}"),
            .messages = "[" USER "]"},
        {IN("{\"type\": \"reasoning\", \"summary\": [], \"encrypted_content\": \"x\"}"), .error = "no message"},
        {IN("1"), .error = "list of items"},
        {IN("{\"type\": \"function_call\", \"name\": \"f\"}"), .error = "arguments as text"},
        {"{\"input\": \"a\", \"conversation\": \"c\"}", .error = "conversations are not stored"},
        {"{\"input\": \"a\", \"prompt\": {\"id\": \"p\"}}", .error = "prompts are not stored"},
        {"{\"input\": \"a\", \"previous_response_id\": \"r\"}", .error = "--response-store"},
        {"{\"input\": \"a\", \"background\": true}", .error = "'background' is not supported"},
        {"{\"input\": \"hi\", \"background\": false, \"conversation\": null, \"prompt\": null}", .messages =
            "[" USER "]"},
    };
    CHECK(convert_responses, rows);
}

#define SPACE "\"tools\": [{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"type\": \"object\"}}," \
    " {\"type\": \"namespace\", " \
              "\"name\": \"mcp\", \"description\": \"About.\", \"tools\": [{\"type\": \"function\", \"name\":" \
                  " \"g\", \"description\": \"d\"}, " \
              "{\"type\": \"custom\", \"name\": \"h\"}]}, {\"type\": \"web_search\"}, {\"type\": \"local_shell\"}]"
#define OFFERED "{\"type\": \"function\", \"function\": {\"name\": \"mcp__g\", \"description\": \"About.\\n\\nd\"}}"

static void responses_tools(void **state)
{
    (void) state;
    static const struct row rows[] = {
        {"{\"input\": \"a\", " SPACE "}", .tools = "[" F ", " OFFERED "]", .left_out = "custom, web_search,"
            " local_shell"},
        {"{\"input\": \"a\", " SPACE ", \"tool_choice\": {\"type\": \"function\", \"name\": \"g\"}}",
         .vars = "{\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"mcp__g\"}}}"},
        {"{\"input\": \"a\", " SPACE ", \"tool_choice\": {\"type\": \"allowed_tools\", \"mode\": \"required\","
            " \"tools\": [{\"type\": "
         "\"function\", \"name\": \"f\"}]}}", .tools = "[" F "]", .vars = "{\"tool_choice\": \"required\"}"},
        {"{\"input\": \"a\", " SPACE ", \"tool_choice\": {\"type\": \"web_search\"}}", .error = "type web_search"},
        {"{\"input\": \"a\", " SPACE ", \"tool_choice\": \"none\"}", .tools = ""},
        {"{\"input\": \"a\", \"tools\": [{\"type\": \"web_search\"}], \"tool_choice\": \"required\"}", .error =
            "no function"},
        {"{\"input\": \"a\", \"tools\": [{}]}", .error = "without a type"},
        {"{\"input\": \"a\", \"reasoning\": {\"effort\": \"none\"}}", .vars = "{\"enable_thinking\": false}"},
    };
    CHECK(convert_responses, rows);
}

static void chats_are_checked(void **state)
{
    (void) state;
    static const struct row rows[] = {
        {ASK("\"tools\": [" F ", {\"type\": \"web_search\"}]"), .tools = "[" F "]", .left_out = "web_search"},
        {ASK("\"tools\": [" F "], \"tool_choice\": \"none\""), .tools = ""},
        {ASK("\"tools\": [" F "], \"tool_choice\": \"sometimes\""), .error = "auto, required, none"},
        {ASK("\"tools\": [" F "], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"g\"}}"),
            .error = "names 'g'"},
        {ASK("\"tool_choice\": \"required\""), .error = "no function"},
        {ASK("\"tools\": [" F ", " G "], \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\":"
            " {\"mode\": \"auto\", "
             "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]}}"), .tools = "[" G "]",
                 .vars = "{\"tool_choice\": \"auto\"}"},
        {"{\"messages\": [{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": [{\"type\": \"text\","
            " \"text\": \"a\"}, "
         "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:\"}}]}]}",
         .messages = "[{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"a[image omitted: this"
             " server reads text only]\"}]"},
    };
    CHECK(convert_chat, rows);
}

/* With a vision model: parts of type image, and their sources in the order of the messages. */
static void images_are_collected(void **state)
{
    (void) state;
#define URL(u) "{\"type\": \"image_url\", \"image_url\": {\"url\": \"" u "\", \"detail\": \"low\"}}"
#define INPUT(u) "{\"type\": \"input_image\", \"image_url\": \"" u "\"}"
#define DATA(d) "{\"type\": \"image\", \"source\": {\"type\": \"base64\", \"media_type\": \"image/png\"," \
    " \"data\": \"" d "\"}}"
#define T(t) "{\"type\": \"text\", \"text\": \"" t "\"}"
#define I "{\"type\": \"image\"}"
    static const struct {
        int (*convert)(params *, pi_error *);
        const char *request, *messages, *images, *error; /* images: their texts, each followed by "|" */
    } rows[] = {
        {convert_chat, BLOCKS(T("a") "," URL("u1") "," T("b") "," URL("u2")),
         "[{\"role\": \"user\", \"content\": [" T("a") "," I "," T("b") "," I "]}]", "u1|u2|", NULL},
        {convert_chat, "{\"messages\": [" USER ", {\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\":"
            " [" T("r") "," URL("u") "]}]}",
         "[" USER ", {\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": [" T("r") "," I "]}]", "u|", NULL},
        {convert_chat, BLOCKS("{\"type\": \"image\"}"), NULL, NULL, "without data"},
        {convert_chat, BLOCKS("{\"type\": \"input_image\", \"file_id\": \"f\"}"), NULL, NULL, "file id"},
        {convert_anthropic, BLOCKS(T("a") "," DATA("AAAA") "," T("b")),
         "[{\"role\": \"user\", \"content\": [" T("a") "," I "," T("b") "]}]", "AAAA|", NULL},
        {convert_anthropic, BLOCKS("{\"type\": \"image\", \"source\": {\"type\": \"url\", \"url\": \"https://h/i\"}}"),
         "[{\"role\": \"user\", \"content\": [" I "]}]", "https://h/i|", NULL},
        /* results become messages before the user's: so do their images */
        {convert_anthropic, BLOCKS(DATA("BBBB") ", {\"type\": \"tool_result\", \"tool_use_id\": \"1\","
            " \"content\": [" T("r") "," DATA("AAAA") "]}"),
         "[{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": [" T("r") "," I "]}, {\"role\": \"user\","
             " \"content\": [" I "]}]", "AAAA|BBBB|", NULL},
        {convert_responses, IN("{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"a\"}, "
            INPUT("u") "]}, {\"type\": \"function_call_output\", \"call_id\": \"1\", \"output\": [" INPUT("v") "]}"),
         "[{\"role\": \"user\", \"content\": [" T("a") "," I "]}, {\"role\": \"tool\", \"tool_call_id\": \"1\","
             " \"content\": [" I "]}]", "u|v|", NULL},
        {convert_responses, IN(USER ", {\"role\": \"assistant\", \"content\": [" INPUT("u") "]}"), NULL, NULL,
         "an image"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        params p;
        pi_error err = {0};
        char images[256] = "";
        json_t *root = json_loads(rows[i].request, 0, NULL);
        if (!root) fail_msg("not JSON: %s", rows[i].request);
        assert_int_equal(params_read(&p, root, 0, &err), PI_OK);
        p.reads_images = true;
        int rc = rows[i].convert(&p, &err);
        if (!rows[i].error != !rc || (rc && !strstr(err.msg, rows[i].error)))
            fail_msg("%s: %d %s", rows[i].request, rc, err.msg);
        if (!rc) same("messages", rows[i].request, p.messages, rows[i].messages);
        for (size_t k = 0; !rc && k < p.n_images; k++) {
            snprintf(images + strlen(images), sizeof images - strlen(images), "%.*s|", (int) p.images[k].n,
                     p.images[k].text);
            assert_int_equal(p.images[k].base64, rows[i].convert == convert_anthropic && *p.images[k].text != 'h');
            assert_int_equal(p.images[k].low, rows[i].convert == convert_chat);
        }
        if (!rc) assert_string_equal(images, rows[i].images);
        params_free(&p);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(anthropic_messages_become_chat_messages), cmocka_unit_test(anthropic_tools_and_thinking),
        cmocka_unit_test(formats_become_options),
            cmocka_unit_test(responses_items_become_chat_messages),
        cmocka_unit_test(responses_tools),                         cmocka_unit_test(chats_are_checked),
        cmocka_unit_test(images_are_collected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
