/* Errors in OpenAI's format (see fault.h). */
#include "serve/fault.h"

#include <string.h>

#include "pagedinfer.h"
#include "serve/text.h"

int status_of(int pi_code)
{
    switch (pi_code) {
    case PI_EINVAL:
    case PI_ETOOBIG:
    case PI_EUNSUPPORTED: return 400;
    case PI_EBUSY: return 429;
    case PI_ENOMEM:
    case PI_ECLOSED: return 503;
    case PI_ETIMEDOUT: return 504;
    }
    return 500;
}

static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error"; /* llama-server's name */
    case 503: return "unavailable_error";
    }
    return status < 500 ? "invalid_request_error" : "server_error";
}

json_t *fault_json(int status, const char *param, const char *code, const char *message)
{
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", text_json(message, strlen(message)), "type",
                     type_of(status), "param", param, "code", code);
}
