/* SPDX-License-Identifier: Apache-2.0 */
/* xml.h - the part of XML that NCCL's topology files use: elements, attributes in quotes, comments. No text, entities
 * or declarations. Names and values are slices of the text. The only errors are faults in it. */
#ifndef SHUNT_XML_H
#define SHUNT_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XML_MAX_ATTRIBUTES = 32 };

typedef struct xml_place {
    const char *at;
    uint32_t line, column; /* from 1 */
} xml_place_t;

typedef struct xml_text {
    const char *at;
    size_t bytes;
} xml_text_t;

typedef struct xml_attribute {
    xml_text_t name, value;
    xml_place_t place; /* of the value */
} xml_attribute_t;

typedef enum xml_kind { XML_OPEN, XML_SINGLE, XML_CLOSE, XML_END } xml_kind_t;

typedef struct xml_element {
    xml_kind_t kind;
    xml_text_t name;
    xml_place_t place;
    uint32_t attributes;
    xml_attribute_t attribute[XML_MAX_ATTRIBUTES];
} xml_element_t;

typedef struct xml_reader {
    const char *file;
    const char *end;
    xml_place_t place;
    char *fault; /* may be NULL */
    size_t fault_bytes;
} xml_reader_t;

void xml_begin(xml_reader_t *xml, const char *file, const char *text, size_t bytes, char *fault, size_t fault_bytes);
/* False on a fault; XML_END at the end of the text. */
bool xml_next(xml_reader_t *xml, xml_element_t *element);

bool xml_is(xml_text_t text, const char *word);
const xml_attribute_t *xml_attribute(const xml_element_t *element, const char *name); /* NULL: none */
/* "file:line:column: expected ..."; returns false. */
bool xml_fault(const xml_reader_t *xml, const xml_place_t *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A missing attribute leaves *out unchanged; a malformed one is a fault. */
bool xml_number(const xml_reader_t *xml, const xml_element_t *element, const char *name, int64_t least, int64_t most,
                int64_t *out);
bool xml_word(const xml_reader_t *xml, const xml_element_t *element, const char *name, char *out, size_t bytes);
/* A missing attribute is a fault. */
bool xml_need(const xml_reader_t *xml, const xml_element_t *element, const char *name);

#endif
