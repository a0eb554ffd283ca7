// The generated character classes, kept apart as data.
#include "text/unicode_table.inc"
