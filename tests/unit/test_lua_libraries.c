/* The Lua libraries of scripts, in their sandbox: limits of nesting, lengths and sizes, and results at these limits.
 * The replies are those of Valkey. */
#include "unit.h"
#include "script/lua_vm.h"
#include <lauxlib.h>
#include <string.h>

struct snippet {
    const char *code, *result; /* result: as tostring() shows it; "!…": the error */
};

static lua_State *lua;

static int setup(void **state) {
    lua = luaL_newstate();
    lua_sandbox_open(lua, LUA_VM_EVAL);
    lua_settop(lua, 0);
    return 0;
}
static int teardown(void **state) {
    lua_close(lua);
    return 0;
}

static void run_all(const struct snippet *snippets, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *expected = snippets[i].result, *result;
        int status = luaL_loadbuffer(lua, snippets[i].code, strlen(snippets[i].code), "=c");
        if (!status) status = lua_pcall(lua, 0, 1, 0);
        if (status) {
            result = lua_tostring(lua, -1);
            if (strncmp(result, "c:1: ", 5) == 0) result += 5;
        } else {
            lua_getglobal(lua, "tostring");
            lua_insert(lua, -2);
            lua_call(lua, 1, 1);
            result = lua_tostring(lua, -1);
        }
        bool fails = expected[0] == '!';
        if (fails != (status != 0) || strcmp(result, expected + fails) != 0)
            fail_msg("%s: %s%s", snippets[i].code, status ? "error " : "", result);
        lua_settop(lua, 0);
    }
}

#define SNIPPETS(name) TEST_WITH(name, setup, teardown)

SNIPPETS(cjson_nesting_is_bounded) {
    static const struct snippet snippets[] = {
        {"local t = {} for i = 2, 1000 do t = {t} end return #cjson.encode(t)", "2000"},
        {"local t = {} for i = 2, 1001 do t = {t} end return cjson.encode(t)",
         "!Cannot serialise, excessive nesting (1001)"},
        {"local t = {} t[1] = t return cjson.encode(t)", "!Cannot serialise, excessive nesting (1001)"},
        {"return #cjson.decode(string.rep('[', 1000) .. string.rep(']', 1000))", "1"},
        {"return cjson.decode(string.rep('[', 1001) .. string.rep(']', 1001))",
         "!Found too many nested data structures (1001) at character 1001"},
        {"return cjson.decode(string.rep('{\"a\":', 1000) .. '1' .. string.rep('}', 1000)).a ~= nil", "true"},
        {"return cjson.decode(string.rep('{\"a\":', 1001) .. '1' .. string.rep('}', 1001))",
         "!Found too many nested data structures (1001) at character 5001"},
        {"return cjson.decode(string.rep('[', 100000))",
         "!Found too many nested data structures (1001) at character 1001"},
        {"cjson.encode_max_depth(2) local ok, e = pcall(cjson.encode, {{{}}}) cjson.encode_max_depth(1000) return e",
         "Cannot serialise, excessive nesting (3)"},
        {"cjson.decode_max_depth(2) local ok, e = pcall(cjson.decode, '[[[]]]') cjson.decode_max_depth(1000) return e",
         "Found too many nested data structures (3) at character 3"},
        {"return cjson.encode_max_depth(0)",
         "!bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)"},
        {"return cjson.decode_max_depth(-1)",
         "!bad argument #1 to 'decode_max_depth' (expected integer between 1 and 2147483647)"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cjson_sparse_arrays_are_bounded) {
    static const struct snippet snippets[] = {
        {"return cjson.encode({[1] = 1, [10] = 1})", "[1,null,null,null,null,null,null,null,null,1]"},
        {"return cjson.encode({[1] = 1, [11] = 1})", "!Cannot serialise table: excessively sparse array"},
        {"return cjson.encode({[2147483647] = 1})", "!Cannot serialise table: excessively sparse array"},
        {"return cjson.encode({[2147483648] = 1})", "{\"2147483648\":1}"},
        {"return cjson.encode({[1e300] = 1})", "{\"1e+300\":1}"},
        {"return cjson.encode({[0] = 1})", "{\"0\":1}"},
        {"return cjson.encode({[-1] = 1})", "{\"-1\":1}"},
        {"return cjson.encode({[1.5] = 1})", "{\"1.5\":1}"},
        {"cjson.encode_sparse_array(true) local t = cjson.encode({[1000] = 1}) cjson.encode_sparse_array(false) return "
         "t",
         "{\"1000\":1}"},
        {"cjson.encode_sparse_array(false, 0) local t = cjson.encode({[30] = 1}) cjson.encode_sparse_array(false, 2) "
         "return #t",
         "148"},
        {"return cjson.encode_sparse_array(false, -1)",
         "!bad argument #1 to 'encode_sparse_array' (expected integer between 0 and 2147483647)"},
        {"return cjson.encode_sparse_array(false, 2, -1)",
         "!bad argument #1 to 'encode_sparse_array' (expected integer between 0 and 2147483647)"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cjson_numbers_have_their_limits) {
    static const struct snippet snippets[] = {
        {"return cjson.encode(1e308 * 10)", "!Cannot serialise number: must not be NaN or Inf"},
        {"return cjson.encode(0/0)", "!Cannot serialise number: must not be NaN or Inf"},
        {"cjson.encode_invalid_numbers('null') local t = cjson.encode({1/0, 0/0}) cjson.encode_invalid_numbers(false) "
         "return t",
         "[null,null]"},
        {"cjson.encode_invalid_numbers(true) local t = cjson.encode({1/0, -1/0}) cjson.encode_invalid_numbers(false) "
         "return t",
         "[inf,-inf]"},
        {"return cjson.encode(123456789012345678)", "1.2345678901235e+17"},
        {"cjson.encode_number_precision(3) local t = cjson.encode(3.14159) cjson.encode_number_precision(14) return t",
         "3.14"},
        {"return cjson.encode_number_precision(0)",
         "!bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)"},
        {"return cjson.encode_number_precision(15)",
         "!bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)"},
        {"return cjson.encode_number_precision(17)",
         "!bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)"},
        {"return cjson.decode('1e999') == 1/0", "true"},
        {"return cjson.decode('-1e999') == -1/0", "true"},
        {"return cjson.decode(string.rep('9', 400)) == 1/0", "true"},
        {"return cjson.decode('0x10')", "16"},
        {"cjson.decode_invalid_numbers(false) local ok, e = pcall(cjson.decode, '0x10') "
         "cjson.decode_invalid_numbers(true) return e",
         "Expected value but found invalid number at character 1"},
        {"cjson.decode_invalid_numbers(false) local ok, e = pcall(cjson.decode, '[nan]') "
         "cjson.decode_invalid_numbers(true) return e",
         "Expected value but found invalid token at character 2"},
        {"return cjson.decode('-')", "!Expected value but found invalid number at character 1"},
        {"return cjson.decode('1.2.3')", "!Expected the end but found invalid token at character 4"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cjson_texts_that_end_too_early_are_refused) {
    static const struct snippet snippets[] = {
        {"return cjson.decode('')", "!Expected value but found T_END at character 1"},
        {"return cjson.decode('[')", "!Expected value but found T_END at character 2"},
        {"return cjson.decode('[1,')", "!Expected value but found T_END at character 4"},
        {"return cjson.decode('{\"a\"')", "!Expected colon but found T_END at character 5"},
        {"return cjson.decode('{\"a\":')", "!Expected value but found T_END at character 6"},
        {"return cjson.decode('{\"a\":1,')", "!Expected object key string but found T_END at character 8"},
        {"return cjson.decode('\"abc')", "!Expected value but found unexpected end of string at character 5"},
        {"return cjson.decode('\"\\\\')", "!Expected value but found invalid escape code at character 2"},
        {"return cjson.decode('\"\\\\u12')", "!Expected value but found invalid unicode escape code at character 2"},
        {"return cjson.decode('\"\\\\ud800\"')",
         "!Expected value but found invalid unicode escape code at character 2"},
        {"return cjson.decode('\"\\\\ud800\\\\u0041\"')",
         "!Expected value but found invalid unicode escape code at character 2"},
        {"return cjson.decode('\"\\\\udc00\"')",
         "!Expected value but found invalid unicode escape code at character 2"},
        {"return #cjson.decode('\"\\\\ud83d\\\\ude00\"')", "4"},
        {"return cjson.decode('tru')", "!Expected value but found invalid token at character 1"},
        {"return cjson.decode('[1] 2')", "!Expected the end but found T_NUMBER at character 5"},
        {"return cjson.decode('[1,]')", "!Expected value but found T_ARR_END at character 4"},
        {"return cjson.decode('{1:2}')", "!Expected object key string but found T_NUMBER at character 2"},
        {"return cjson.decode('\\0')", "!Expected value but found T_END at character 1"},
        {"return #cjson.decode('\"\\\\u0000\"')", "1"},
        {"return cjson.decode('\"\\1\"')", "\1"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cjson_refuses_what_json_cannot_hold) {
    static const struct snippet snippets[] = {
        {"return cjson.encode({[{}] = 1})", "!Cannot serialise table: table key must be a number or string"},
        {"return cjson.encode({[true] = 1})", "!Cannot serialise boolean: table key must be a number or string"},
        {"return cjson.encode()", "!bad argument #1 to 'encode' (expected 1 argument)"},
        {"return cjson.encode(1, 2)", "!bad argument #1 to 'encode' (expected 1 argument)"},
        {"return cjson.decode()", "!bad argument #1 to 'decode' (expected 1 argument)"},
        {"return cjson.decode({})", "!bad argument #1 to 'decode' (string expected, got table)"},
        {"return cjson.encode(cjson.null)", "null"},
        {"return cjson.encode({})", "{}"},
        {"return cjson.encode('\\0\\31\\127/')", "\"\\u0000\\u001f\\u007f\\/\""},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cmsgpack_nesting_is_bounded) {
    static const struct snippet snippets[] = {
        {"local t = 7 for i = 1, 16 do t = {t} end return string.byte(cmsgpack.pack(t), -1)", "7"},
        {"local t = 7 for i = 1, 17 do t = {t} end return string.byte(cmsgpack.pack(t), -1)", "192"},
        {"local t = {} t[1] = t return #cmsgpack.pack(t)", "17"},
        {"local t = {} t.a = t return #cmsgpack.pack(t)", "49"},
        {"return type(cmsgpack.unpack(string.rep('\\145', 3000) .. '\\1'))", "table"},
        {"return cmsgpack.unpack(string.rep('\\145', 100000))", "!stack overflow (in function mp_decode_to_lua_array)"},
        {"return cmsgpack.unpack(string.rep('\\129', 100000))",
         "!stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"},
        {"return cmsgpack.unpack(string.rep('\\129\\1', 50000) .. '\\1')",
         "!stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cmsgpack_lengths_are_only_claims) {
    static const struct snippet snippets[] = {
        {"return cmsgpack.unpack('\\221\\255\\255\\255\\255')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\221\\255\\255\\255\\255\\1\\2')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\223\\255\\255\\255\\255')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\223\\255\\255\\255\\255\\1\\2')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\219\\255\\255\\255\\255abc')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\218\\255\\255abc')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\217\\4abc')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\164abc')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\204')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\205\\1')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\206\\1\\1\\1')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\207\\1\\1\\1\\1\\1\\1\\1')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\202\\1')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\203')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\202\\1\\2')", "!Missing bytes in input."},
        {"return cmsgpack.unpack('\\193')", "!Bad data format in input."},
        {"return cmsgpack.unpack('\\199\\1\\1\\1')", "!Bad data format in input."},
        {"return cmsgpack.unpack('\\212\\1\\1')", "!Bad data format in input."},
        {"return cmsgpack.unpack('\\129\\192\\1')", "!table index is nil"},
        {"return cmsgpack.unpack('\\129\\202\\127\\192\\0\\0\\1')", "!table index is NaN"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cmsgpack_offsets_and_limits_are_checked) {
    static const struct snippet snippets[] = {
        {"return cmsgpack.unpack_one('\\1\\2', 3)", "!Start offset 3 greater than input length 2."},
        {"return cmsgpack.unpack_one('\\1\\2', -1)", "!Invalid request to unpack with offset of -1 and limit of 2."},
        {"return cmsgpack.unpack_limit('\\1\\2', -1)", "!Invalid request to unpack with offset of 0 and limit of 2."},
        {"return cmsgpack.unpack_limit('\\1\\2', 1, 3)", "!Start offset 3 greater than input length 2."},
        {"return cmsgpack.unpack_one('\\1\\2', 2147483647)", "!Start offset 2147483647 greater than input length 2."},
        {"return select('#', cmsgpack.unpack_one('\\1\\2'))", "2"},
        {"return (cmsgpack.unpack_one('\\1\\2'))", "1"},
        {"return (cmsgpack.unpack_one('\\1\\2', 1))", "-1"},
        {"return select('#', cmsgpack.unpack_limit('\\1\\2\\3', 2))", "3"},
        {"return select('#', cmsgpack.unpack(string.rep('\\1', 5000)))", "5000"},
        {"return select('#', cmsgpack.unpack(string.rep('\\1', 9000)))",
         "!stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"},
        {"return cmsgpack.unpack()", "!bad argument #1 to 'unpack' (string expected, got no value)"},
        {"return cmsgpack.pack()", "!bad argument #0 to 'pack' (MessagePack pack needs input.)"},
        {"return cmsgpack.unpack({})", "!bad argument #1 to 'unpack' (string expected, got table)"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(cmsgpack_numbers_take_the_shortest_form) {
    static const struct snippet snippets[] = {
        {"return #cmsgpack.pack(127)", "1"},
        {"return #cmsgpack.pack(128)", "2"},
        {"return #cmsgpack.pack(256)", "3"},
        {"return #cmsgpack.pack(65536)", "5"},
        {"return #cmsgpack.pack(4294967296)", "9"},
        {"return #cmsgpack.pack(-32)", "1"},
        {"return #cmsgpack.pack(-33)", "2"},
        {"return #cmsgpack.pack(-129)", "3"},
        {"return #cmsgpack.pack(-32769)", "5"},
        {"return #cmsgpack.pack(-2147483649)", "9"},
        {"return #cmsgpack.pack(0.5)", "5"},
        {"return #cmsgpack.pack(0.1)", "9"},
        {"return string.byte(cmsgpack.pack(1/0))", "202"},
        {"return cmsgpack.unpack(cmsgpack.pack(2^53)) == 2^53", "true"},
        {"return cmsgpack.unpack('\\207\\255\\255\\255\\255\\255\\255\\255\\255')", "-1"},
        {"return #cmsgpack.pack(string.rep('a', 31))", "32"},
        {"return #cmsgpack.pack(string.rep('a', 32))", "34"},
        {"return #cmsgpack.pack(string.rep('a', 256))", "259"},
        {"return #cmsgpack.pack(string.rep('a', 65536))", "65541"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(struct_sizes_are_bounded) {
    static const struct snippet snippets[] = {
        {"return struct.size('i32')", "32"},
        {"return struct.size('i33')", "!integral size 33 is larger than limit of 32"},
        {"return struct.size('I99999999999')", "!integral size overflow"},
        {"return struct.size('i4294967297')", "!integral size overflow"},
        {"return struct.size('!3i')", "!alignment 3 is not a power of 2"},
        {"return struct.size('!32i')", "4"},
        {"return struct.size('!64i')", "4"},
        {"return struct.size('c2147483648')", "!integral size overflow"},
        {"return struct.size('c9999999999999999999')", "!integral size overflow"},
        {"return struct.size('c0')", "!bad argument #1 to 'size' (option 'c0' has no fixed size)"},
        {"return struct.size('s')", "!bad argument #1 to 'size' (option 's' has no fixed size)"},
        {"return struct.size('x')", "1"},
        {"return struct.size('!8bd')", "16"},
        {"return struct.size('y')", "0"},
        {"return struct.size('bhilfd')", "27"},
        {"return struct.size('')", "0"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(struct_data_that_is_too_short_is_refused) {
    static const struct snippet snippets[] = {
        {"return struct.unpack('i4', '\\1\\2\\3')", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('c4', 'abc')", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('s', 'abc')", "!unfinished string in data"},
        {"return struct.unpack('bc0', '\\4abc')", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('bc0', '\\255abc')", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('c0', 'abc')", "!format 'c0' needs a previous size"},
        {"return struct.unpack('sc0', 'a\\0b')", "!format 'c0' needs a previous size"},
        {"return struct.unpack('b', 'a', 2)", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('b', 'a', 0)", "!bad argument #3 to 'unpack' (offset must be 1 or greater)"},
        {"return struct.unpack('b', 'a', -5)", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('b', 'a', 2147483647)", "!bad argument #2 to 'unpack' (data string too short)"},
        {"return struct.unpack('i9', string.rep('\\255', 9))", "-1"},
        {"return struct.unpack('I8', string.rep('\\255', 8))", "1.844674407371e+19"},
        {"return struct.unpack('>I3', '\\1\\2\\3')", "66051"},
        {"return struct.unpack('bc0', '\\3abc')", "abc"},
        {"return struct.unpack('c3s', 'abcd\\0')", "abc"},
        {"return struct.unpack('!8bd', '\\1')", "!bad argument #2 to 'unpack' (data string too short)"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(struct_arguments_must_fit_the_format) {
    static const struct snippet snippets[] = {
        {"return struct.pack('c4', 'abc')", "!bad argument #3 to 'pack' (string too short)"},
        {"return #struct.pack('c2', 'abc')", "2"},
        {"return #struct.pack('c0', 'abc')", "3"},
        {"return #struct.pack('s', 'abc')", "4"},
        {"return struct.pack('i', 'x')", "!bad argument #2 to 'pack' (number expected, got string)"},
        {"return struct.pack('i')", "!bad argument #2 to 'pack' (number expected, got nil)"},
        {"return struct.pack('y', 1)", "!bad argument #1 to 'pack' (invalid format option 'y')"},
        {"return string.byte(struct.pack('b', 300))", "44"},
        {"return #struct.pack('>i16', -1)", "16"},
        {"return string.byte(struct.pack('>i16', -1), 1)", "0"},
        {"return #struct.pack('!4bi4', 1, 2)", "8"},
        {"return #struct.pack('xxx')", "3"},
        {"return #struct.pack(string.rep('b', 7000), unpack({}, 1, 7000))",
         "!bad argument #2 to 'pack' (number expected, got nil)"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}

SNIPPETS(bit_operations_have_32_bits) {
    static const struct snippet snippets[] = {
        {"return bit.tobit(4294967295)", "-1"},
        {"return bit.tobit(4294967296)", "0"},
        {"return bit.tobit(2147483648)", "-2147483648"},
        {"return bit.tobit(1e15)", "-1530494976"},
        {"return bit.tobit(-1.5)", "-2"},
        {"return bit.lshift(1, 31)", "-2147483648"},
        {"return bit.lshift(1, 32)", "1"},
        {"return bit.lshift(1, 33)", "2"},
        {"return bit.rshift(-1, 31)", "1"},
        {"return bit.arshift(-2147483648, 31)", "-1"},
        {"return bit.rol(0x12345678, 36)", "591751041"},
        {"return bit.ror(0x12345678, -4)", "591751041"},
        {"return bit.bswap(0x12345678)", "2018915346"},
        {"return bit.tohex(255)", "000000ff"},
        {"return bit.tohex(255, 4)", "00ff"},
        {"return bit.tohex(255, -4)", "00FF"},
        {"return bit.tohex(255, 0)", ""},
        {"return bit.tohex(255, 100)", "000000ff"},
        {"return bit.tohex(-1, -2147483648)", "FFFFFFFF"},
        {"return bit.band()", "!bad argument #1 to 'band' (number expected, got no value)"},
        {"return bit.bor('a')", "!bad argument #1 to 'bor' (number expected, got string)"},
        {"return bit.bxor(1, {})", "!bad argument #2 to 'bxor' (number expected, got table)"},
        {"return bit.bnot(0)", "-1"},
        {"return bit.band(0xffffffff, 0xff00, 0x1234)", "4608"},
    };
    run_all(snippets, sizeof snippets / sizeof *snippets);
}
