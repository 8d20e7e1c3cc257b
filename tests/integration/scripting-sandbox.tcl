# What scripts cannot reach and cannot change, and what of the server's resources they cannot exhaust.
# seconds: 5

start_server {tags {scripting}} {
    test "globals and libraries are read-only" {
        set refused "Attempt to modify a readonly table script: on @user_script:1."
        foreach script {{x = 1} {_G.x = 1} {redis.x = 1} {redis.call = 1} {string.foo = 1} {KEYS = 1} {cjson.encode = nil} {math.random = nil}
            {getmetatable('').__index = nil} {getmetatable('').foo = 1} {getmetatable(_G).__index = nil} {function f() end}} {
            assert_error "ERR user_script:1: $refused" {r eval $script 0}
        }
        foreach script {{rawset(_G, 'x', 1)} {rawset(redis, 'call', 1)} {setmetatable(_G, {})} {setmetatable(string, nil)} {table.insert(_G, 1)}} {
            assert_error "ERR $refused" {r eval $script 0}
        }
        assert_equal ok [r eval {return ({pcall(function() redis.call = nil end)})[1] and 'changed' or 'ok'} 0]
        assert_equal X [r eval {return ('x'):upper()} 0]
    }

    test "read-only tables look like tables" {
        assert_equal 1 [r eval {
            local n = 0
            for k, v in pairs(redis) do n = n + (k == 'call' and type(v) == 'function' and 1 or 0) end
            for k, v in next, string do n = n + (k == 'rep' and 10 or 0) end
            return n == 11 and next(math) ~= nil and rawget(_G, 'redis') == redis and rawget(_G, 'nosuch') == nil
        } 0]
        assert_equal 1 [r eval {return getmetatable(redis) == nil and type(getmetatable(_G).__index) == 'function'} 0]
        assert_equal 1 [r eval {return getmetatable('').__index == string} 0]
        assert_equal 1 [r eval {return redis == server} 0]
    }

    test "a script leaves nothing for the next one" {
        r eval {ARGV[2] = 'left' KEYS.x = 1} 1 k a
        assert_equal {0 0} [r eval {return {#KEYS, #ARGV}} 0]
        r eval {setmetatable(KEYS, {__index = function() return 'left' end})} 0
        assert_equal "" [r eval {return KEYS[1]} 0]
        r eval {collectgarbage('stop')} 0
        set before [info_field memory used_memory_vm_eval]
        for {set i 0} {$i < 20} {incr i} {r eval {local t = {} for i = 1, 10000 do t[i] = {} end} 0}
        assert_lessthan [info_field memory used_memory_vm_eval] [expr {$before + 20000000}]
    }

    test "there is no way to files, processes, modules, environments and bytecode" {
        foreach name {io debug package require module dofile loadfile print newproxy getfenv setfenv} {
            assert_error_like "ERR *nonexistent global variable '$name'*" {r eval "return $name" 0}
        }
        assert_equal 1 [r eval {local n = 0 for k in pairs(os) do n = n + 1 end return n == 1 and os.clock() > 0} 0]
        assert_error_like "*unexpected symbol near 'char(27)'*" {r eval "\x1bLua" 0}
        foreach script {
            {return loadstring(string.dump(function() return 1 end))}
            {local s = string.dump(function() return 1 end) local n = 0 return load(function() n = n + 1 return n <= #s and s:sub(n, n) or nil end)}
            {local s = string.dump(function() return 1 end) local n = 0 return load(function() n = n + 1 return n == 1 and s or nil end)}
        } {
            assert_equal "" [r eval $script 0]
        }
        assert_equal 5 [r eval {return loadstring('return 5')()} 0]
        assert_equal 5 [r eval {local n = 0 return load(function() n = n + 1 return ({'return ', '5'})[n] end)()} 0]
    }

    test "recursion ends with an error" {
        assert_error_like "ERR *stack overflow*" {r eval {local function f() return f() + 1 end return f()} 0}
        assert_error_like "ERR *" {r eval {local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end return f(1)} 0}
        assert_error_like "ERR *pattern too complex*" {r eval {return (('a'):rep(100000)):match(('a?'):rep(100000))} 0}
        assert_equal 9000 [r eval {return #(('a'):rep(9000)):match(('a?'):rep(5000) .. '.*')} 0]
        assert_error_like "ERR *excessive nesting*" {r eval {local t = {} t[1] = t return cjson.encode(t)} 0}
        assert_error_like "ERR *too many nested*" {r eval {return cjson.decode(('['):rep(100000))} 0}
        assert_error_like "ERR *stack overflow*" {r eval {return cmsgpack.unpack(('\145'):rep(100000))} 0}
        assert_equal 17 [r eval {local t = {} t[1] = t return #cmsgpack.pack(t)} 0]
        set c [new_client]
        $c -send eval {local t = {} t[1] = t return t} 0
        catch {$c -read}
        $c -close
        assert_equal PONG [r ping]
    }

    test "cjson" {
        foreach {script reply} {
            {return cjson.encode({1, 2, 3})} {[1,2,3]}
            {return cjson.encode({a = {1, {b = 2}}})} {{"a":[1,{"b":2}]}}
            {return cjson.encode({})} {{}}
            {return cjson.encode(cjson.null)} null
            {return cjson.encode(1 / 3)} 0.33333333333333
            {return cjson.encode('"\\/\8\t\n\12\r\1\127')} {"\"\\\/\b\t\n\f\r\u0001\u007f"}
            {return cjson.decode('[1,{"a":"\\u20ac"}]')[2].a} "\u20ac"
            {local s = cjson.decode('"\\ud83d\\ude00"') return ('%x %x %x %x'):format(s:byte(1, -1))} "f0 9f 98 80"
            {return tostring(cjson.decode('[1,null]')[2])} "userdata: (nil)"
            {return #cjson.decode('[[],{},true,false,-1.5e3]')} 5
        } {
            assert_equal $reply [encoding convertfrom utf-8 [r eval $script 0]] $script
        }
        foreach {script error} {
            {return cjson.encode(0/0)} "Cannot serialise number: must not be NaN or Inf"
            {return cjson.encode({1, [100] = 2})} "Cannot serialise table: excessively sparse array"
            {return cjson.encode(print ~= nil)} "Script attempted to access nonexistent global variable 'print'"
            {return cjson.encode({[true] = 1})} "Cannot serialise boolean: table key must be a number or string"
            {return cjson.decode('x')} "Expected value but found invalid token at character 1"
            {return cjson.decode('[1')} "Expected comma or array end but found T_END at character 3"
            {return cjson.decode('{"a" 1}')} "Expected colon but found T_NUMBER at character 6"
            {return cjson.decode('"a')} "Expected value but found unexpected end of string at character 3"
        } {
            assert_error "ERR user_script:1: $error script: on @user_script:1." {r eval $script 0}
        }
    }

    test "cmsgpack" {
        assert_equal 1 [r eval {
            local values = {1, -1, 127, 128, 255, 256, 65535, 65536, 2^32, -32, -33, -128, -129, -32769, -2^31 - 1, 1.5, 1.1, 'x', ('x'):rep(31),
                ('x'):rep(32), ('x'):rep(256), ('x'):rep(65536), true, false}
            for i, v in ipairs(values) do if cmsgpack.unpack(cmsgpack.pack(v)) ~= v then return i * -1 end end
            local t = cmsgpack.unpack(cmsgpack.pack({1, {a = 'b'}, {}}))
            return t[1] == 1 and t[2].a == 'b' and #t[3] == 0
        } 0]
        assert_equal {1 2 3} [r eval {return {cmsgpack.unpack(cmsgpack.pack(1, 2, 3))}} 0]
        assert_equal {1 1} [r eval {return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}} 0]
        assert_equal {2 1 2} [r eval {return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}} 0]
        foreach {bytes error} {{\146\1} "Missing bytes in input." {\193} "Bad data format in input." {\221\255\255\255\255} "Missing bytes in input."} {
            assert_error "ERR user_script:1: $error script: on @user_script:1." {r eval "return cmsgpack.unpack('$bytes')" 0}
        }
    }

    test "struct and bit" {
        assert_equal "\0\0\0\0\0\0\0\1\0\0\2ab\0" [r eval {return struct.pack('>lI3s', 1, 2, 'ab')} 0]
        assert_equal {1 -2 ab 300 9} [r eval {return {struct.unpack('<bbBc0xh', struct.pack('<bbBc0xh', 1, -2, 2, 'ab', 300))}} 0]
        assert_equal 16 [r eval {return struct.size('!8bd')} 0]
        assert_error_like "*data string too short*" {r eval {return struct.unpack('i', 'a')} 0}
        assert_error_like "*integral size overflow*" {r eval {return struct.pack('I4294967294', 1)} 0}
        assert_equal {15 000000ff -1} [r eval {return {bit.band(255, 15), bit.tohex(255), bit.bnot(0)}} 0]
    }
}
