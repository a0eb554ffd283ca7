// The generated character classes, kept apart as data.
#include "text/unicode/unicode_table.inc"
