/* Codebooks of the IQ formats, packed (see iq_tables.h). Constants only. */
#include "formats/iq_tables.h"

#include "formats/iq_codes.h"

const uint16_t pi__iq2xxs_codes[256] = {PI__IQ2XXS_CODES};
const uint16_t pi__iq2xs_codes[512] = {PI__IQ2XS_CODES};
const uint16_t pi__iq2s_codes[1024] = {PI__IQ2S_CODES};
const uint16_t pi__iq3xxs_codes[256] = {PI__IQ3XXS_CODES};
const uint16_t pi__iq3s_codes[512] = {PI__IQ3S_CODES};
const uint16_t pi__iq1_codes[2048] = {PI__IQ1_CODES};
