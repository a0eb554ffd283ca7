// The generated character classes.
#include "text/unicode/unicode_table.inc"
