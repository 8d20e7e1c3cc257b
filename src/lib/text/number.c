/* number.c: numbers to text and back; see number.h.
 *
 * Doubles are formatted by Grisu2 (Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers",
 * 2010): 64-bit integer arithmetic and a table of powers of ten. Its text always reads back to the same double. It is
 * the shortest such text except for about one number in a thousand. Rejected: an exact algorithm (Ryu, Schubfach) would
 * be as fast, but some texts would differ from Valkey's, which agree with Grisu2: 1e23 is "99999999999999990000000".
 *
 * Short decimal texts are parsed without strtod: a mantissa below 2^53 and a power of ten up to 10^22 are exact as
 * doubles, so their product or quotient is rounded once and is therefore correct. */
#include "lib/text/number.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char digit_pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
    "49505152535455565758596061626364656667686970717273747576777879808182838485868788899091929394959697"
    "9899";

/* --- Integers --- */

/* Digits only, no leading zero, at most 2^64-1. */
static bool parse_digits(const char *at, size_t len, uint64_t *value) {
    if (len == 0 || len > 20 || (len > 1 && at[0] == '0')) return false;
    uint64_t v = 0;
    size_t safe = len < 19 ? len : 19; /* this number of digits cannot overflow */
    for (size_t i = 0; i < safe; i++) {
        unsigned digit = (unsigned char)at[i] - '0';
        if (digit > 9) return false;
        v = v * 10 + digit;
    }
    if (len == 20) {
        unsigned digit = (unsigned char)at[19] - '0';
        if (digit > 9) return false;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v)) return false;
    }
    *value = v;
    return true;
}

bool parse_uint64(struct slice text, uint64_t *value) {
    return parse_digits(text.data, text.len, value);
}

bool parse_int64(struct slice text, int64_t *value) {
    uint64_t v;
    if (text.len && text.data[0] == '-') {
        if (!parse_digits(text.data + 1, text.len - 1, &v)) return false;
        if (v == 0 || v > (uint64_t)INT64_MAX + 1) return false;
        *value = (int64_t)(0 - v);
        return true;
    }
    if (!parse_digits(text.data, text.len, &v) || v > INT64_MAX) return false;
    *value = (int64_t)v;
    return true;
}

bool parse_uint64_loosely(const char *text, uint64_t *value) {
    char *end;
    int64_t negative; /* strtoull() would accept it */
    if (parse_uint64(slice_of(text), value)) return true;
    if (parse_int64(slice_of(text), &negative)) return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return !errno && *text && !*end;
}

static inline unsigned count_digits(uint64_t v) {
    unsigned n = 1;
    for (;;) {
        if (v < 10) return n;
        if (v < 100) return n + 1;
        if (v < 1000) return n + 2;
        if (v < 10000) return n + 3;
        v /= 10000, n += 4;
    }
}

size_t format_uint64(char *text, uint64_t value) {
    unsigned len = count_digits(value);
    char *at = text + len;
    while (value >= 100) {
        at -= 2;
        memcpy(at, digit_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10)
        memcpy(at - 2, digit_pairs + value * 2, 2);
    else
        at[-1] = (char)('0' + value);
    return len;
}

size_t format_int64(char *text, int64_t value) {
    if (value >= 0) return format_uint64(text, (uint64_t)value);
    *text = '-';
    return 1 + format_uint64(text + 1, 0 - (uint64_t)value);
}

/* --- Reading doubles --- */

static const double exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* [-]digits[.digits] with up to 15 digits; strtod handles anything else. */
static bool parse_short_decimal(struct slice text, double *value) {
    size_t i = 0, digits = 0, fraction = 0;
    bool negative = text.len && text.data[0] == '-', point = false;
    uint64_t mantissa = 0;
    if (text.len > 17) return false;
    for (i = negative; i < text.len; i++) {
        unsigned digit = (unsigned char)text.data[i] - '0';
        if (digit <= 9) {
            mantissa = mantissa * 10 + digit;
            digits++, fraction += point;
        } else if (text.data[i] == '.' && !point) {
            point = true;
        } else {
            return false;
        }
    }
    if (digits == 0 || digits > 15) return false;
    double v = (double)mantissa / exact_powers[fraction];
    *value = negative ? -v : v;
    return true;
}

/* Copies the text and adds a NUL. Rejects leading space, which both strto functions would skip. */
static bool number_text(char *copy, size_t size, struct slice text) {
    if (text.len == 0 || text.len >= size) return false;
    unsigned char first = (unsigned char)text.data[0];
    if (first == ' ' || (first >= '\t' && first <= '\r')) return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    return true;
}

bool number_is_hexadecimal(struct slice text) {
    size_t sign = text.len && (text.data[0] == '-' || text.data[0] == '+');
    return text.len > sign + 1 && text.data[sign] == '0' && (text.data[sign + 1] | 0x20) == 'x';
}

bool parse_double(struct slice text, double *value) {
    if (parse_short_decimal(text, value)) return true;
    char copy[DOUBLE_TEXT_MAX], *end;
    if (!number_text(copy, sizeof(copy), text) || number_is_hexadecimal(text)) return false;
    errno = 0;
    double v = strtod(copy, &end);
    if (end != copy + text.len || isnan(v)) return false;
    if (errno == ERANGE && (isinf(v) || v == 0)) return false;
    *value = v;
    return true;
}

bool parse_long_double(struct slice text, long double *value) {
    char copy[DOUBLE_TEXT_MAX], *end;
    if (!number_text(copy, sizeof(copy), text)) return false;
    errno = 0;
    long double v = strtold(copy, &end);
    if (end != copy + text.len || isnan(v)) return false;
    if (errno == ERANGE && (isinf(v) || v == 0)) return false;
    *value = v;
    return true;
}

/* --- Writing doubles --- */

/* mantissa x 2^exponent */
struct wide {
    uint64_t mantissa;
    int exponent;
};

enum {
    POWER_FIRST = -348,
    POWER_STEP = 8,
    POWERS = 87,
    EXPONENT_MIN = -60 /* exponent of a scaled number; at most -32 */
};
/* 10^-348, 10^-340, …, 10^340, mantissas rounded to 64 bits. */
static const struct wide powers[POWERS] = {
    {0xfa8fd5a0081c0288, -1220}, {0xbaaee17fa23ebf76, -1193}, {0x8b16fb203055ac76, -1166}, {0xcf42894a5dce35ea, -1140},
    {0x9a6bb0aa55653b2d, -1113}, {0xe61acf033d1a45df, -1087}, {0xab70fe17c79ac6ca, -1060}, {0xff77b1fcbebcdc4f, -1034},
    {0xbe5691ef416bd60c, -1007}, {0x8dd01fad907ffc3c, -980},  {0xd3515c2831559a83, -954},  {0x9d71ac8fada6c9b5, -927},
    {0xea9c227723ee8bcb, -901},  {0xaecc49914078536d, -874},  {0x823c12795db6ce57, -847},  {0xc21094364dfb5637, -821},
    {0x9096ea6f3848984f, -794},  {0xd77485cb25823ac7, -768},  {0xa086cfcd97bf97f4, -741},  {0xef340a98172aace5, -715},
    {0xb23867fb2a35b28e, -688},  {0x84c8d4dfd2c63f3b, -661},  {0xc5dd44271ad3cdba, -635},  {0x936b9fcebb25c996, -608},
    {0xdbac6c247d62a584, -582},  {0xa3ab66580d5fdaf6, -555},  {0xf3e2f893dec3f126, -529},  {0xb5b5ada8aaff80b8, -502},
    {0x87625f056c7c4a8b, -475},  {0xc9bcff6034c13053, -449},  {0x964e858c91ba2655, -422},  {0xdff9772470297ebd, -396},
    {0xa6dfbd9fb8e5b88f, -369},  {0xf8a95fcf88747d94, -343},  {0xb94470938fa89bcf, -316},  {0x8a08f0f8bf0f156b, -289},
    {0xcdb02555653131b6, -263},  {0x993fe2c6d07b7fac, -236},  {0xe45c10c42a2b3b06, -210},  {0xaa242499697392d3, -183},
    {0xfd87b5f28300ca0e, -157},  {0xbce5086492111aeb, -130},  {0x8cbccc096f5088cc, -103},  {0xd1b71758e219652c, -77},
    {0x9c40000000000000, -50},   {0xe8d4a51000000000, -24},   {0xad78ebc5ac620000, 3},     {0x813f3978f8940984, 30},
    {0xc097ce7bc90715b3, 56},    {0x8f7e32ce7bea5c70, 83},    {0xd5d238a4abe98068, 109},   {0x9f4f2726179a2245, 136},
    {0xed63a231d4c4fb27, 162},   {0xb0de65388cc8ada8, 189},   {0x83c7088e1aab65db, 216},   {0xc45d1df942711d9a, 242},
    {0x924d692ca61be758, 269},   {0xda01ee641a708dea, 295},   {0xa26da3999aef774a, 322},   {0xf209787bb47d6b85, 348},
    {0xb454e4a179dd1877, 375},   {0x865b86925b9bc5c2, 402},   {0xc83553c5c8965d3d, 428},   {0x952ab45cfa97a0b3, 455},
    {0xde469fbd99a05fe3, 481},   {0xa59bc234db398c25, 508},   {0xf6c69a72a3989f5c, 534},   {0xb7dcbf5354e9bece, 561},
    {0x88fcf317f22241e2, 588},   {0xcc20ce9bd35c78a5, 614},   {0x98165af37b2153df, 641},   {0xe2a0b5dc971f303a, 667},
    {0xa8d9d1535ce3b396, 694},   {0xfb9b7cd9a4a7443c, 720},   {0xbb764c4ca7a44410, 747},   {0x8bab8eefb6409c1a, 774},
    {0xd01fef10a657842c, 800},   {0x9b10a4e5e9913129, 827},   {0xe7109bfba19c0c9d, 853},   {0xac2820d9623bf429, 880},
    {0x80444b5e7aa7cf85, 907},   {0xbf21e44003acdd2d, 933},   {0x8e679c2f5e44ff8f, 960},   {0xd433179d9c8cb841, 986},
    {0x9e19db92b4e31ba9, 1013},  {0xeb96bf6ebadf77d9, 1039},  {0xaf87023b9bf0ee6b, 1066},
};

static struct wide wide_normalize(struct wide w) {
    int shift = __builtin_clzll(w.mantissa);
    return (struct wide){w.mantissa << shift, w.exponent - shift};
}
static struct wide wide_multiply(struct wide a, struct wide b) { /* the upper half of the product, rounded */
    unsigned __int128 product = (unsigned __int128)a.mantissa * b.mantissa + ((uint64_t)1 << 63);
    return (struct wide){(uint64_t)(product >> 64), a.exponent + b.exponent + 64};
}

/* The generated digits are `rest` below the upper boundary, the number itself is `distance` below it. Decrements the
 * last digit while the result comes closer to the number and stays within `delta`, the width of the interval that reads
 * back to the same double. */
static void digits_round(char *last, uint64_t delta, uint64_t rest, uint64_t unit, uint64_t distance) {
    while (rest < distance && delta - rest >= unit &&
           (rest + unit < distance || distance - rest > rest + unit - distance)) {
        (*last)--;
        rest += unit;
    }
}

/* Generates digits of the upper boundary until the remainder is less than the width of the interval. */
static int digits_generate(struct wide value, struct wide upper, struct wide lower, char *digits, int *power) {
    int shift = -upper.exponent, n = 0, left = 10;
    uint64_t one = (uint64_t)1 << shift, delta = upper.mantissa - lower.mantissa;
    uint64_t distance = upper.mantissa - value.mantissa;
    uint64_t whole = upper.mantissa >> shift, fraction = upper.mantissa & (one - 1);
    for (uint64_t divisor = 1000000000; left > 0; divisor /= 10) {
        char digit = (char)(whole / divisor);
        whole %= divisor;
        if (digit || n) digits[n++] = (char)('0' + digit);
        left--;
        uint64_t rest = (whole << shift) + fraction;
        if (rest <= delta) {
            *power += left;
            digits_round(digits + n - 1, delta, rest, divisor << shift, distance);
            return n;
        }
    }
    for (uint64_t scale = 10;; scale *= 10) {
        fraction *= 10, delta *= 10;
        char digit = (char)(fraction >> shift);
        if (digit || n) digits[n++] = (char)('0' + digit);
        fraction &= one - 1;
        left--;
        if (fraction < delta) {
            *power += left;
            digits_round(digits + n - 1, delta, fraction, one, distance * scale);
            return n;
        }
    }
}

/* `value` > 0 is digits x 10^power; returns the number of digits, at most 17. */
static int grisu2(double value, char digits[20], int *power) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    struct wide w = {mantissa, -1074};
    if (exponent) w = (struct wide){mantissa | (uint64_t)1 << 52, exponent - 1075};

    /* Halfway to the neighbors; below a power of two the neighbor is closer. */
    struct wide upper = wide_normalize((struct wide){w.mantissa * 2 + 1, w.exponent - 1});
    struct wide lower = {w.mantissa * 2 - 1, w.exponent - 1};
    if (mantissa == 0 && exponent > 1) lower = (struct wide){w.mantissa * 4 - 1, w.exponent - 2};
    lower = (struct wide){lower.mantissa << (lower.exponent - upper.exponent), upper.exponent};
    w = wide_normalize(w);

    /* The first power that raises the exponent far enough. */
    int estimate = (int)((EXPONENT_MIN - 1 - w.exponent - 63) * 0.30102999566398120 - POWER_FIRST) / POWER_STEP - 1;
    int i = estimate < 0 ? 0 : estimate;
    while (w.exponent + powers[i].exponent + 64 < EXPONENT_MIN) i++;
    *power = -(POWER_FIRST + i * POWER_STEP);

    w = wide_multiply(w, powers[i]);
    upper = wide_multiply(upper, powers[i]);
    lower = wide_multiply(lower, powers[i]);
    upper.mantissa--, lower.mantissa++; /* the products are off by one at most: stay inside */
    return digits_generate(w, upper, lower, digits, power);
}

static size_t number_put(char *text, const char *bytes, int len) {
    memcpy(text, bytes, (size_t)len);
    return (size_t)len;
}
static size_t put_zeros(char *text, int count) {
    memset(text, '0', (size_t)count);
    return (size_t)count;
}

/* Plain notation for integers with few trailing zeros and for short fractions, otherwise d.dde±x. */
static size_t digits_layout(char *text, const char *digits, int n, int power) {
    size_t len = 0;
    int exponent = power + n - 1, magnitude = exponent < 0 ? -exponent : exponent;
    if (power >= 0 && magnitude < n + 7) {
        len += number_put(text, digits, n);
        return len + put_zeros(text + len, power);
    }
    if (power < 0 && (power > -7 || magnitude < 4)) {
        int point = n + power; /* digits before the point */
        if (point <= 0) {
            len += number_put(text, "0.", 2);
            len += put_zeros(text + len, -point);
            return len + number_put(text + len, digits, n);
        }
        len += number_put(text, digits, point);
        text[len++] = '.';
        return len + number_put(text + len, digits + point, n - point);
    }
    text[len++] = digits[0];
    if (n > 1) {
        text[len++] = '.';
        len += number_put(text + len, digits + 1, n - 1);
    }
    text[len++] = 'e';
    text[len++] = exponent < 0 ? '-' : '+';
    return len + format_uint64(text + len, (uint64_t)magnitude);
}

size_t format_double(char text[static 40], double value) {
    if (value >= -0x1p62 && value <= 0x1p62 && (double)(int64_t)value == value)
        return value == 0 && signbit(value) ? number_put(text, "-0", 2) : format_int64(text, (int64_t)value);
    return format_double_digits(text, value);
}

size_t format_double_digits(char text[static 40], double value) {
    if (isnan(value)) return number_put(text, "nan", 3);
    if (isinf(value)) return value > 0 ? number_put(text, "inf", 3) : number_put(text, "-inf", 4);
    if (value == 0) return signbit(value) ? number_put(text, "-0", 2) : number_put(text, "0", 1);
    char digits[20];
    int power;
    size_t sign = value < 0;
    if (sign) *text++ = '-', value = -value;
    int n = grisu2(value, digits, &power);
    return sign + digits_layout(text, digits, n, power);
}

/* The fraction is mantissa / 2^shift, and mantissa * 10^17 fits into 128 bits, so the rounding is exact, half to even,
 * as in printf. */
size_t format_fixed(char text[static DOUBLE_TEXT_MAX], long double value, unsigned decimals) {
    static const uint64_t tens[FIXED_DECIMALS_MAX + 1] = {1,       10,       100,       1000, 10000, 100000,
                                                          1000000, 10000000, 100000000, 1e9,  1e10,  1e11,
                                                          1e12,    1e13,     1e14,      1e15, 1e16,  1e17};
    bool exact = LDBL_MANT_DIG <= 64 || (long double)(double)value == value;
    if (!exact || !(value > -0x1p62L && value < 0x1p62L)) /* the largest value has 4933 digits before the point */
        return (size_t)snprintf(text, DOUBLE_TEXT_MAX, "%.*Lf", (int)decimals, value);
    size_t len = signbit(value) ? number_put(text, "-", 1) : 0;
    if (value < 0) value = -value;
    uint64_t whole = (uint64_t)value, digits = 0;
    int exponent;
    uint64_t mantissa = (uint64_t)(frexpl(value - (long double)whole, &exponent) * 0x1p64L);
    int shift = 64 - exponent;
    if (shift < 128) {
        unsigned __int128 scaled = (unsigned __int128)mantissa * tens[decimals],
                          half = (unsigned __int128)1 << (shift - 1);
        digits = (uint64_t)(scaled >> shift);
        unsigned __int128 rest = scaled - ((unsigned __int128)digits << shift);
        digits += rest > half || (rest == half && (digits & 1));
    }
    if (digits == tens[decimals]) whole++, digits = 0;
    len += format_uint64(text + len, whole);
    text[len] = '.';
    for (unsigned i = decimals; i > 0; i--, digits /= 10) text[len + i] = (char)('0' + digits % 10);
    return len + 1 + decimals;
}

size_t format_long_double(char text[static DOUBLE_TEXT_MAX], long double value) {
    if (isnan(value)) return number_put(text, "nan", 3);
    if (isinf(value)) return value > 0 ? number_put(text, "inf", 3) : number_put(text, "-inf", 4);
    if (value >= -0x1p62L && value <= 0x1p62L && (long double)(int64_t)value == value)
        return format_int64(text, (int64_t)value);
    size_t len = format_fixed(text, value, FIXED_DECIMALS_MAX);
    while (text[len - 1] == '0') len--;
    if (text[len - 1] == '.') len--;
    if (len == 2 && text[0] == '-' && text[1] == '0') text[0] = '0', len = 1;
    return len;
}

/* --- Sizes --- */

bool parse_memory(struct slice text, uint64_t *bytes) {
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {{"", 1},        {"b", 1},        {"k", 1000},       {"kb", 1 << 10},
                 {"m", 1000000}, {"mb", 1 << 20}, {"g", 1000000000}, {"gb", 1 << 30}};
    uint64_t value = 0;
    size_t i = 0;
    for (; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text.data[i] - '0', &value))
            return false;
    struct slice unit = {text.data + i, text.len - i};
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++)
        if (slice_is(unit, units[u].name)) return !__builtin_mul_overflow(value, units[u].factor, bytes);
    return false;
}

size_t format_memory(char *text, uint64_t bytes) {
    static const char units[] = {'k', 'm', 'g'};
    int unit = 0;
    while (bytes && bytes % 1024 == 0 && unit < (int)sizeof units) bytes /= 1024, unit++;
    size_t len = format_uint64(text, bytes);
    if (unit) text[len++] = units[unit - 1], text[len++] = 'b';
    return len;
}

size_t format_bytes_human(char text[static 32], uint64_t bytes) {
    static const char units[] = "BKMGTP";
    int unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit < 5) value /= 1024, unit++;
    if (unit == 0) return (size_t)snprintf(text, 32, "%dB", (int)bytes);
    return (size_t)snprintf(text, 32, "%.2f%c", value, units[unit]);
}
