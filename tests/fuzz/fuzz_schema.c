/* Fuzzes JSON Schemas: the text, and after a zero byte the trigger (see grammar_fuzz.h). */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_form(PI__GRAMMAR_SCHEMA, data, size); }
