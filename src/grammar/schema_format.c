/* Formats of texts that are enforced (see schema.c).
 *
 * Each is a regular expression of texts that every parser of the format accepts. Some limits of the standards need too
 * large an expression (253 characters of a host name). The expression then allows less: host names have up to three
 * labels of 63 characters, or seven of 31. Formats that are not listed are annotations. */
#include <string.h>

#include "grammar/schema.h"

/* RFC 3339. Only leap years have February 29; year 0000 and leap seconds are excluded. */
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
#define DATE "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
             "02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
/* ISO 8601 as in appendix A of RFC 3339: years, months and days without gaps, or weeks. */
#define N "[0-9]{1,9}"
#define CLOCK "T(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S)"
#define DURATION "P(" N "W|(" N "Y(" N "M(" N "D)?)?|" N "M(" N "D)?|" N "D)(" CLOCK ")?|" CLOCK ")"

/* RFC 1123: labels of letters and digits, with single hyphens inside. */
#define A "[A-Za-z0-9]"
#define LABEL "(" A "(-?" A "){0,31}|" A "{33,63})"
#define SHORT A "(-?" A "){0,15}"
#define HOST "(" LABEL "(\\." LABEL "){0,2}|" SHORT "(\\." SHORT "){3,6})"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define H "[0-9a-fA-F]{1,4}"
#define IPV6 "((" H ":){7}" H "|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H ":){1,4}" \
             "(:" H "){1,3}|" \
             "(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H "){1,6}|:((:" H "){1,7}|:)|" \
             "(" H ":){6}" IPV4 "|::([fF]{4}:)?" IPV4 ")"
/* RFC 5321 without quotes and comments; the local part has up to 64 characters. */
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define EMAIL "(" ATEXT "(\\.?" ATEXT "){0,31}|" ATEXT "{33,64})@" HOST

/* RFC 3986; IRIs (RFC 3987) allow more characters. */
#define UCS "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"
#define PCT "%[0-9A-Fa-f]{2}"
#define REG(u) "([A-Za-z0-9._~!$&'()*+,;=" u "-]|" PCT ")"
#define USER(u) "([A-Za-z0-9._~!$&'()*+,;=:" u "-]|" PCT ")"
#define PCHAR(u) "([A-Za-z0-9._~!$&'()*+,;=:@" u "-]|" PCT ")"
#define QUERY(u) "([A-Za-z0-9._~!$&'()*+,;=:@/?" u "-]|" PCT ")*"
#define NO_COLON(u) "([A-Za-z0-9._~!$&'()*+,;=@" u "-]|" PCT ")"
#define AUTHORITY(u) "//((" USER(u) "*@)?(" REG(u) "*|\\[" IPV6 "\\])(:[0-9]{0,5})?)(/" PCHAR(u) "*)*"
#define ABSOLUTE(u) "/(" PCHAR(u) "+(/" PCHAR(u) "*)*)?"
#define TAIL(u) "(\\?" QUERY(u) ")?(#" QUERY(u) ")?"
#define URI(u) "[A-Za-z][A-Za-z0-9+.-]*:(" AUTHORITY(u) "|" ABSOLUTE(u) "|" PCHAR(u) "+(/" PCHAR(u) "*)*)?" TAIL(u)
#define RELATIVE(u) "(" AUTHORITY(u) "|" ABSOLUTE(u) "|" NO_COLON(u) "+(/" PCHAR(u) "*)*)?" TAIL(u)
#define POINTER "(/([^~/]|~[01])*)*"
/* RFC 6570: literal characters, and names in braces. */
#define NAME "[A-Za-z0-9_]+(\\.[A-Za-z0-9_]+)*(:[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE "([A-Za-z0-9._~!$&()*+,;=:@/?#-]|" PCT "|\\{[+#./;?&]?" NAME "(," NAME ")*\\})*"
/* Regular expressions: constructs that all dialects share; groups are not nested. */
#define R_ATOM "([A-Za-z0-9 _,:;=@#%&<>!~'-]|\\.|\\\\[dDwWsS.+*?()\\[\\]{}|^$\\\\/]|" \
               "\\[\\^?([A-Za-z0-9 _.]|a-z|A-Z|0-9)+\\])"
#define R_PIECE R_ATOM "([*+?]|\\{[0-9]{1,3},?\\})?"
#define R_GROUP "\\((\\?:)?(" R_PIECE ")+(\\|(" R_PIECE ")+)*\\)[*+?]?"
#define R_SEQUENCE "\\^?(" R_PIECE "|" R_GROUP ")+\\$?"
#define REGEX R_SEQUENCE "(\\|" R_SEQUENCE ")*"

static const struct { const char *name, *regex; } formats[] = {
    {"date", DATE}, {"time", TIME}, {"date-time", DATE "T" TIME}, {"duration", DURATION},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4", IPV4}, {"ipv6", IPV6}, {"hostname", HOST}, {"idn-hostname", HOST}, {"email", EMAIL}, {"idn-email", EMAIL},
    {"uri", URI("")}, {"uri-reference", "(" URI("") "|" RELATIVE("") ")"},
    {"iri", URI(UCS)}, {"iri-reference", "(" URI(UCS) "|" RELATIVE(UCS) ")"}, {"uri-template", TEMPLATE},
    {"json-pointer", POINTER}, {"relative-json-pointer", "(0|[1-9][0-9]{0,8})(#|" POINTER ")"}, {"regex", REGEX}};

const char *pi__format_regex(const pi__val *format)
{
    for (size_t i = 0; format->type == PI__V_STR && i < sizeof formats / sizeof *formats; i++)
        if (pi__str_is(format->s, formats[i].name)) return formats[i].regex;
    return NULL;
}
