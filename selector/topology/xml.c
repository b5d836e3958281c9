/* SPDX-License-Identifier: Apache-2.0 */
/* xml.c - see xml.h. */
#include "selector/topology/xml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool xml_fault(const xml_reader_t *xml, const xml_place_t *place, const char *format, ...)
{
    if (!xml->fault || !xml->fault_bytes)
        return false;
    char expected[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    snprintf(xml->fault, xml->fault_bytes, "%s:%u:%u: expected %s", xml->file, place->line, place->column, expected);
    return false;
}

void xml_begin(xml_reader_t *xml, const char *file, const char *text, size_t bytes, char *fault, size_t fault_bytes)
{
    *xml = (xml_reader_t){
        .file = file, .end = text + bytes, .place = {text, 1, 1}, .fault = fault, .fault_bytes = fault_bytes};
}

static bool ended(const xml_reader_t *xml)
{
    return xml->place.at == xml->end;
}

/* Returns 0 at the end of the text. A zero byte matches nothing either. */
static char look(const xml_reader_t *xml)
{
    return ended(xml) ? '\0' : *xml->place.at;
}

static void step(xml_reader_t *xml)
{
    if (*xml->place.at++ == '\n') {
        xml->place.line++;
        xml->place.column = 1;
    } else {
        xml->place.column++;
    }
}

static bool begins(const xml_reader_t *xml, const char *word)
{
    const size_t bytes = strlen(word);
    return (size_t)(xml->end - xml->place.at) >= bytes && memcmp(xml->place.at, word, bytes) == 0;
}

static void skip(xml_reader_t *xml, size_t bytes)
{
    while (bytes-- > 0)
        step(xml);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':';
}

static void skip_space(xml_reader_t *xml)
{
    while (is_space(look(xml)))
        step(xml);
}

static bool take(xml_reader_t *xml, char c)
{
    if (ended(xml) || look(xml) != c)
        return xml_fault(xml, &xml->place, "'%c'", c);
    step(xml);
    return true;
}

static bool take_name(xml_reader_t *xml, xml_text_t *name, const char *what)
{
    const xml_place_t start = xml->place;
    while (is_name(look(xml)))
        step(xml);
    *name = (xml_text_t){start.at, (size_t)(xml->place.at - start.at)};
    return name->bytes > 0 || xml_fault(xml, &start, "%s", what);
}

static bool take_value(xml_reader_t *xml, xml_attribute_t *attribute)
{
    const char quote = look(xml);
    if (quote != '"' && quote != '\'')
        return xml_fault(xml, &xml->place, "a value in quotes");
    step(xml);
    attribute->place = xml->place;
    while (!ended(xml) && look(xml) != quote) {
        if (look(xml) == '<' || look(xml) == '\n' || look(xml) == '\0')
            return xml_fault(xml, &xml->place, "the quote that ends the value");
        step(xml);
    }
    attribute->value = (xml_text_t){attribute->place.at, (size_t)(xml->place.at - attribute->place.at)};
    return take(xml, quote);
}

static bool take_attributes(xml_reader_t *xml, xml_element_t *element)
{
    for (;;) {
        const bool apart = is_space(look(xml));
        skip_space(xml);
        if (look(xml) == '/' || look(xml) == '>')
            return true;
        if (!apart)
            return xml_fault(xml, &xml->place, "a space, '/' or '>'");
        if (element->attributes == XML_MAX_ATTRIBUTES)
            return xml_fault(xml, &xml->place, "at most %d attributes", XML_MAX_ATTRIBUTES);
        xml_attribute_t *attribute = &element->attribute[element->attributes];
        if (!take_name(xml, &attribute->name, "an attribute's name, '/' or '>'") || !take(xml, '=') ||
            !take_value(xml, attribute))
            return false;
        element->attributes++;
    }
}

static bool skip_comment(xml_reader_t *xml)
{
    const xml_place_t start = xml->place;
    skip(xml, 4);
    while (!begins(xml, "-->")) {
        if (ended(xml))
            return xml_fault(xml, &start, "--> after this <!--");
        step(xml);
    }
    skip(xml, 3);
    return true;
}

bool xml_next(xml_reader_t *xml, xml_element_t *element)
{
    element->attributes = 0;
    for (skip_space(xml); begins(xml, "<!--"); skip_space(xml)) {
        if (!skip_comment(xml))
            return false;
    }
    element->place = xml->place;
    element->name = (xml_text_t){xml->place.at, 0};
    if (ended(xml)) {
        element->kind = XML_END;
        return true;
    }
    if (!take(xml, '<'))
        return false;
    if (look(xml) == '/') {
        step(xml);
        element->kind = XML_CLOSE;
        if (!take_name(xml, &element->name, "an element's name"))
            return false;
        skip_space(xml);
        return take(xml, '>');
    }
    if (!take_name(xml, &element->name, "an element's name") || !take_attributes(xml, element))
        return false;
    element->kind = look(xml) == '/' ? XML_SINGLE : XML_OPEN;
    if (element->kind == XML_SINGLE)
        step(xml);
    return take(xml, '>');
}

bool xml_is(xml_text_t text, const char *word)
{
    return text.bytes == strlen(word) && memcmp(text.at, word, text.bytes) == 0;
}

const xml_attribute_t *xml_attribute(const xml_element_t *element, const char *name)
{
    for (uint32_t i = 0; i < element->attributes; i++) {
        if (xml_is(element->attribute[i].name, name))
            return &element->attribute[i];
    }
    return NULL;
}

bool xml_need(const xml_reader_t *xml, const xml_element_t *element, const char *name)
{
    return xml_attribute(element, name) ||
           xml_fault(xml, &element->place, "%s in <%.*s>", name, (int)element->name.bytes, element->name.at);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

/* Decimal, or hexadecimal after 0x, with an optional minus and nothing else. */
static bool number_of(xml_text_t text, int64_t *out)
{
    size_t i = text.bytes > 1 && text.at[0] == '-' ? 1 : 0;
    const int64_t sign = i ? -1 : 1;
    const bool hex = text.bytes > i + 2 && text.at[i] == '0' && (text.at[i + 1] == 'x' || text.at[i + 1] == 'X');
    const int base = hex ? 16 : 10;
    int64_t value = 0;
    for (i += hex ? 2 : 0; i < text.bytes; i++) {
        const int digit = digit_of(text.at[i]);
        if (digit >= base || value > (INT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    *out = sign * value;
    return text.bytes > 0;
}

bool xml_number(const xml_reader_t *xml, const xml_element_t *element, const char *name, int64_t least, int64_t most,
                int64_t *out)
{
    const xml_attribute_t *attribute = xml_attribute(element, name);
    int64_t value = 0;
    if (!attribute)
        return true;
    if (!number_of(attribute->value, &value) || value < least || value > most)
        return xml_fault(xml, &attribute->place, "%s to be a number from %lld to %lld", name, (long long)least,
                         (long long)most);
    *out = value;
    return true;
}

bool xml_word(const xml_reader_t *xml, const xml_element_t *element, const char *name, char *out, size_t bytes)
{
    const xml_attribute_t *attribute = xml_attribute(element, name);
    if (!attribute)
        return true;
    if (attribute->value.bytes >= bytes)
        return xml_fault(xml, &attribute->place, "%s of at most %zu characters", name, bytes - 1);
    for (size_t i = 0; i < attribute->value.bytes; i++) {
        const char c = attribute->value.at[i];
        if (c < ' ' || c > '~' || c == '"')
            return xml_fault(xml, &attribute->place, "%s in plain characters", name);
    }
    memset(out, 0, bytes);
    memcpy(out, attribute->value.at, attribute->value.bytes);
    return true;
}
